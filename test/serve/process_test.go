package serve

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// patience limits every wait on a machine that is busy with other tests.
const patience = time.Minute

// process is a run of sqube, with its output streams in separate files.
type process struct {
	*harness.Process
	cmd *exec.Cmd
	dir string
}

// option changes how sqube is started.
type option func(*exec.Cmd)

// env adds environment variables, as "NAME=value".
func env(variables ...string) option {
	return func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, variables...) }
}

const nobodyID = 65534

// asNobody runs sqube as an ordinary user if the tests run as root.
func asNobody(cmd *exec.Cmd) {
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobodyID, Gid: nobodyID}
	}
}

// start starts sqube with the arguments. If it still runs when the test ends, it is killed.
func start(t *testing.T, args []string, options ...option) *process {
	t.Helper()
	p := &process{cmd: exec.Command(sqube.Binary(t), args...), dir: t.TempDir()}
	p.cmd.Env = os.Environ()
	p.cmd.SysProcAttr = &syscall.SysProcAttr{}
	for _, o := range options {
		o(p.cmd)
	}
	for name, target := range map[string]func(*os.File){
		"stdout": func(f *os.File) { p.cmd.Stdout = f },
		"stderr": func(f *os.File) { p.cmd.Stderr = f },
	} {
		f, err := os.Create(filepath.Join(p.dir, name))
		harness.Must(t, err)
		defer f.Close() // the child has its own descriptor
		target(f)
	}
	keeper, err := harness.NewKeeper("")
	harness.Must(t, err)
	if p.Process, err = harness.StartProcess(p.cmd, keeper); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(p.End(syscall.SIGKILL), keeper.Dismiss()); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("sqube %s\nwrote to standard output:\n%s\nand to standard error:\n%s", strings.Join(p.cmd.Args[1:], " "), tail(p.read(t, "stdout")), tail(p.read(t, "stderr")))
		}
	})
	return p
}

// run runs sqube to its end and returns what it wrote and its exit code.
func run(t *testing.T, args []string, options ...option) (stdout, stderr string, code int) {
	t.Helper()
	p := start(t, args, options...)
	code = p.wait(t)
	return p.read(t, "stdout"), p.read(t, "stderr"), code
}

// wait waits until the process exits and returns its exit code, -1 if a signal ended it.
func (p *process) wait(t *testing.T) int {
	t.Helper()
	select {
	case <-p.Exited():
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		t.Fatalf("sqube %s still runs after %s", strings.Join(p.cmd.Args[1:], " "), patience)
		return 0
	}
}

// read returns what the process has written to "stdout" or "stderr".
func (p *process) read(t *testing.T, stream string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(p.dir, stream))
	harness.Must(t, err)
	return string(text)
}

// tail returns the end of a text that may be long.
func tail(text string) string { return text[max(0, len(text)-4000):] }

// signal sends a signal.
func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	harness.Must(t, p.Signal(s))
}

// insecure does not verify certificates, like a health check.
var insecure = &http.Client{
	Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true},
	Timeout:   patience / 2, // what never gets a response is tried again
}

// server is a process that serves.
type server struct {
	*process
	url, dataDir string
}

// serve starts a server and waits until it is ready.
func serve(t *testing.T, args []string, options ...option) *server {
	t.Helper()
	s := launch(t, args, options...)
	s.waitReady(t)
	return s
}

// launch is serve without the wait.
func launch(t *testing.T, args []string, options ...option) *server {
	t.Helper()
	return launchAt(t, filepath.Join(t.TempDir(), "data"), freePort(t), args, options...)
}

func launchAt(t *testing.T, dataDir, port string, args []string, options ...option) *server {
	t.Helper()
	s := &server{dataDir: dataDir, url: "https://" + net.JoinHostPort("127.0.0.1", port)}
	s.process = start(t, append([]string{"serve", "--data-dir", dataDir, "--bind-address", "127.0.0.1", "--secure-port", port}, args...), options...)
	return s
}

// serveAt is serve on a data directory and a port of 127.0.0.1.
func serveAt(t *testing.T, dataDir, port string, args []string, options ...option) *server {
	t.Helper()
	s := launchAt(t, dataDir, port, args, options...)
	s.waitReady(t)
	return s
}

func (s *server) waitReady(t *testing.T) {
	t.Helper()
	eventually(t, "the server is ready", func() error {
		select {
		case <-s.Exited():
			t.Fatalf("sqube ended with code %d", s.cmd.ProcessState.ExitCode())
		default:
		}
		response, err := insecure.Get(s.url + "/readyz")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return errors.New(response.Status)
		}
		return nil
	})
}

// settle waits until everything in the server is up; the admission plugins, which writes wait for, are last. Stopping a server
// before that takes some seconds longer.
func (s *server) settle(t *testing.T) {
	t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "settle-"}}
	if _, err := client(t, s.kubeconfig()).CoreV1().ConfigMaps("default").Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// kubeconfig returns the path of the administrator's kubeconfig.
func (s *server) kubeconfig() string { return filepath.Join(s.dataDir, "admin.kubeconfig") }

// eventually retries until there is no error. It polls, since it waits for other processes.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s: %v", patience, what, err)
		}
		select {
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
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
	stdout, stderr, code := run(t, args, options...)
	if err := oneLine(stderr, want); code != 1 || stdout != "" || err != nil {
		t.Errorf("sqube %s\nended with code %d and wrote\n%s%s%v", strings.Join(args, " "), code, stdout, stderr, err)
	}
}

// refusesAfterWarnings is refuses for flags that are also logged.
func refusesAfterWarnings(t *testing.T, want string, args []string) {
	t.Helper()
	stdout, stderr, code := run(t, args)
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

// terminate stops the server with SIGTERM, which must succeed without an error.
func (p *process) terminate(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGTERM)
	if code := p.wait(t); code != 0 {
		t.Errorf("ended with code %d after SIGTERM", code)
	}
}
