package serve

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// option changes how sqube is started.
type option = func(*exec.Cmd)

// env adds environment variables, as "NAME=value".
func env(variables ...string) option {
	return func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, variables...) }
}

const nobodyID = 65534

// asNobody runs sqube as an ordinary user if the tests run as root.
func asNobody(cmd *exec.Cmd) {
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobodyID, Gid: nobodyID}}
	}
}

// insecure does not verify certificates, like a health check.
var insecure = &http.Client{
	Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true},
	Timeout:   harness.Patience / 2, // what never gets a response is tried again
}

// serve starts a server and waits until it is ready.
func serve(t *testing.T, args []string, options ...option) *sqube.Server {
	t.Helper()
	return serveIn(t, "", args, options...)
}

// serveIn is serve on a data directory.
func serveIn(t *testing.T, dataDir string, args []string, options ...option) *sqube.Server {
	t.Helper()
	return sqube.Start(t, sqube.Options{DataDir: dataDir, Args: args, Prepare: all(options)})
}

// serveAgain starts another server in place of one that has ended: on its data directory and its port.
func serveAgain(t *testing.T, s *sqube.Server, args []string, options ...option) *sqube.Server {
	t.Helper()
	return sqube.Start(t, sqube.Options{DataDir: s.DataDir, Port: s.Port, Args: args, Prepare: all(options)})
}

func all(options []option) option {
	return func(cmd *exec.Cmd) {
		for _, o := range options {
			o(cmd)
		}
	}
}

// settle waits until everything in the server is up; the admission plugins, which writes wait for, are last. Stopping a server
// before that takes some seconds longer.
func settle(t *testing.T, s *sqube.Server) {
	t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "settle-"}}
	if _, err := client(t, s.Kubeconfig).CoreV1().ConfigMaps("default").Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// kubectl runs kubectl, which has sqube as its plugin, and returns what it prints.
func kubectl(t *testing.T, kubeconfig, stdin string, args ...string) (string, error) {
	t.Helper()
	bin := t.TempDir()
	harness.Must(t, os.Symlink(sqube.Binary(t), filepath.Join(bin, "kubectl-sqube")))
	cmd := exec.CommandContext(t.Context(), sqube.KubectlBinary(t), args...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Env = append(sqube.KubectlEnv(t, kubeconfig), "PATH="+bin+":"+os.Getenv("PATH"))
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// kubectlPrints is kubectl for what must succeed.
func kubectlPrints(t *testing.T, kubeconfig string, args ...string) string {
	t.Helper()
	text, err := kubectl(t, kubeconfig, "", args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, text)
	}
	return text
}

func freePort(t *testing.T) string {
	t.Helper()
	port, err := harness.FreePort()
	harness.Must(t, err)
	return strconv.Itoa(port)
}

// refuses runs sqube and checks that it writes one line with the wanted text to standard error, and exits with code 1.
func refuses(t *testing.T, want string, args []string, options ...option) {
	t.Helper()
	stdout, stderr, code := sqube.Run(t, args, options...)
	if err := oneLine(stderr, want); code != 1 || stdout != "" || err != nil {
		t.Errorf("sqube %s\nended with code %d and wrote\n%s%s%v", strings.Join(args, " "), code, stdout, stderr, err)
	}
}

// refusesAfterWarnings is refuses for what is also logged.
func refusesAfterWarnings(t *testing.T, want string, args []string, options ...option) {
	t.Helper()
	stdout, stderr, code := sqube.Run(t, args, options...)
	lines := strings.SplitAfter(strings.TrimSuffix(stderr, "\n"), "\n")
	if err := oneLine(lines[len(lines)-1]+"\n", want); code != 1 || stdout != "" || err != nil {
		t.Errorf("sqube %s\nended with code %d and wrote\n%s%s%v", strings.Join(args, " "), code, stdout, stderr, err)
	}
}

func oneLine(text, want string) error {
	line, found := strings.CutSuffix(text, "\n")
	switch {
	case !found || strings.Contains(line, "\n"):
		return errors.New("want one line")
	case !strings.HasPrefix(line, "sqube: "):
		return errors.New(`want a line that begins with "sqube: "`)
	case !strings.Contains(line, want):
		return fmt.Errorf("want %q in it", want)
	}
	return nil
}
