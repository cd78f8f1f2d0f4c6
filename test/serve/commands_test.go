package serve

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// succeeds runs sqube, expects no error, and returns what it wrote.
func succeeds(t *testing.T, args []string, options ...option) string {
	t.Helper()
	stdout, stderr, code := sqube.Run(t, args, options...)
	if code != 0 || stderr != "" {
		t.Fatalf("sqube %s ended with code %d and wrote\n%s%s", strings.Join(args, " "), code, stdout, stderr)
	}
	return stdout
}

// client returns a client that uses a kubeconfig.
func client(t *testing.T, kubeconfig string) kubernetes.Interface {
	t.Helper()
	text, err := os.ReadFile(kubeconfig)
	harness.Must(t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig(text)
	harness.Must(t, err)
	config.QPS = -1 // no client-side limit
	c, err := kubernetes.NewForConfig(config)
	harness.Must(t, err)
	return c
}

// TestKubeconfig creates kubeconfigs for users, and RBAC decides what they may do. It also lists the certificates.
func TestKubeconfig(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	user := func(args ...string) kubernetes.Interface {
		text := succeeds(t, append([]string{"kubeconfig", "--data-dir", s.DataDir}, args...))
		path := filepath.Join(t.TempDir(), "kubeconfig")
		harness.Must(t, os.WriteFile(path, []byte(text), 0o600))
		return client(t, path)
	}
	get := func(c kubernetes.Interface) error {
		_, err := c.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
		return err
	}
	jane := user("--user", "jane", "--group", "developers", "--group", "readers", "--lifetime", "8h")
	if err := get(jane); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `User "jane" cannot list`) {
		t.Errorf("without a binding jane gets %v", err)
	}
	admin := client(t, s.Kubeconfig)
	_, err := admin.RbacV1().RoleBindings("default").Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "readers"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "readers"}},
	}, metav1.CreateOptions{})
	harness.Must(t, err)
	harness.Retry(t, "the binding is in effect", func() error { return get(jane) })
	if err := get(user("--user", "john")); !apierrors.IsForbidden(err) {
		t.Errorf("john, in no group, gets %v", err)
	}
	if err := get(user("--user", "root", "--group", "system:masters")); err != nil {
		t.Errorf("a member of system:masters gets %v", err)
	}
	brief := user("--user", "root", "--group", "system:masters", "--lifetime", "2s")
	harness.Eventually(t, "the certificate expires", func() bool { return get(brief) != nil })

	// It has the URL that the last server had.
	kubeconfig := []string{"kubeconfig", "--user", "jane", "--data-dir", s.DataDir}
	s.Stop(t)
	again := serveIn(t, s.DataDir, nil)
	if text := succeeds(t, kubeconfig); !strings.Contains(text, "\n    server: "+again.URL+"\n") {
		t.Errorf("of the server at %s:\n%s", again.URL, text)
	}
	const other = "https://sqube.example.com"
	if text := succeeds(t, append(kubeconfig, "--server", other)); !strings.Contains(text, "\n    server: "+other+"\n") {
		t.Errorf("with --server %s:\n%s", other, text)
	}
	certs(t, again)
	harness.Must(t, os.Remove(s.Kubeconfig))
	refuses(t, "give its URL with --server", kubeconfig)
	succeeds(t, append(kubeconfig, "--server", other))
}

func TestKubeconfigRefuses(t *testing.T) {
	t.Parallel()
	refuses(t, "--user must be given", []string{"kubeconfig"})
	refuses(t, "--lifetime must be more than 0", []string{"kubeconfig", "--user", "jane", "--lifetime", "0s"})
	empty := filepath.Join(t.TempDir(), "nothing")
	refuses(t, empty, []string{"kubeconfig", "--user", "jane", "--data-dir", empty})
	if _, err := os.Stat(empty); err == nil {
		t.Error("created a data directory")
	}
}

func TestTokenRefuses(t *testing.T) {
	t.Parallel()
	refuses(t, "--server must be a URL", []string{"token", "create", "--server", "10.0.0.1:6443"})
	refuses(t, "want tokens or their ids", []string{"token", "delete"})
}

// certs lists the certificates of a server, and stops it.
func certs(t *testing.T, s *sqube.Server) {
	list := []string{"certs", "--data-dir", s.DataDir}
	for _, runs := range []bool{true, false} {
		if !runs {
			s.Stop(t)
		}
		listed := succeeds(t, list)
		for file, row := range map[string]string{
			"pki/ca.crt": ` sqube-ca +sqube-ca .* 9y`, "pki/apiserver.crt": ` \S+ +sqube-ca .* 36\dd`,
			"pki/apiserver-kubelet-client.crt": ` kube-apiserver-kubelet-client +sqube-ca `, "pki/front-proxy-ca.crt": "", "pki/front-proxy-client.crt": "",
			"pki/admin.crt": " kubernetes-admin ", "admin.kubeconfig": " kubernetes-admin +sqube-ca ",
		} {
			if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(filepath.Join(s.DataDir, file)) + ` .*` + row).MatchString(listed) {
				t.Errorf("%s is not listed, or without %s:\n%s", file, row, listed)
			}
		}
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	harness.Must(t, err)
	old := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(-time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, old, old, key.Public(), key)
	harness.Must(t, err)
	serving := filepath.Join(s.DataDir, "pki", "apiserver.crt")
	harness.Must(t, os.WriteFile(serving, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	if stdout, stderr, code := sqube.Run(t, list); code != 1 || !strings.Contains(stdout, " expired\n") || !strings.Contains(stderr, "certificates have expired: start the server") {
		t.Errorf("an expired certificate is listed with code %d as\n%s%s", code, stdout, stderr)
	}
	harness.Must(t, os.WriteFile(serving, nil, 0o600))
	refuses(t, serving, list)
	refuses(t, "start the server once", []string{"certs", "--data-dir", t.TempDir()})
}

// TestRelativePaths passes data directories relative to the working directory.
func TestRelativePaths(t *testing.T) {
	t.Parallel()
	in := func(dir string) option { return func(cmd *exec.Cmd) { cmd.Dir = dir } }
	dir := t.TempDir()
	succeeds(t, []string{"migrate", "up", "--data-dir", "some where"}, in(dir))
	if got := succeeds(t, []string{"migrate", "status", "--data-dir", "some where"}, in(dir)); !strings.HasPrefix(got, "sqlite://some where/sqube.db has schema ") {
		t.Error(got)
	}
	if got := succeeds(t, []string{"migrate", "status", "--datastore", "sqlite://some%20where/sqube.db"}, in(dir)); !strings.Contains(got, ": up to date") {
		t.Error(got)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	got := succeeds(t, []string{"version"})
	want := regexp.MustCompile(`^Kubernetes API (` + regexp.QuoteMeta(harness.KubernetesVersion(t)) + `)\nsqube \d\S+, commit [0-9a-f]{40} \((clean|dirty)\), built \S+ with go\S+ for \w+/\w+\n$`)
	match := want.FindStringSubmatch(got)
	if match == nil {
		t.Fatalf("got %s", got)
	}
	if flag := succeeds(t, []string{"--version"}); flag != got {
		t.Errorf("--version prints %s", flag)
	}
	s := serve(t, nil)
	response, err := insecure.Get(s.URL + "/version")
	harness.Must(t, err)
	defer response.Body.Close()
	var served struct{ Major, Minor, GitVersion string }
	harness.Must(t, json.NewDecoder(response.Body).Decode(&served))
	if served.GitVersion != match[1] || !strings.HasPrefix(match[1], "v"+served.Major+"."+served.Minor+".") {
		t.Errorf("/version returns %+v, version %s", served, match[1])
	}
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "completion")
	text := succeeds(t, []string{"completion", "bash"})
	harness.Must(t, os.WriteFile(script, []byte(text), 0o600))
	if out, err := exec.Command("bash", "-n", script).CombinedOutput(); err != nil {
		t.Errorf("bash rejects the script: %v\n%s", err, out)
	}
	if got, _, _ := sqube.Run(t, []string{"__completeNoDesc", "serve", "--data"}); !strings.HasPrefix(got, "--data-dir\n--datastore\n") {
		t.Errorf("--data completes to %s", got)
	}
	for _, shell := range []string{"zsh", "fish", "powershell"} {
		succeeds(t, []string{"completion", shell})
	}
}

// TestHelp checks that the lines of the help fit, and that it has the promised flags.
func TestHelp(t *testing.T) {
	t.Parallel()
	if got := succeeds(t, nil); !strings.Contains(got, "\n  sqube [command]") {
		t.Errorf("sqube without arguments prints\n%s", got)
	}
	for _, command := range []string{"serve", "migrate", "kubeconfig", "version"} {
		got := succeeds(t, []string{command, "--help"})
		if !strings.Contains(got, "Usage:\n  sqube "+command) {
			t.Errorf("%s --help prints\n%s", command, got)
		}
	}
	help := succeeds(t, []string{"serve", "--help"})
	shown := map[string]string{} // defaults
	for _, flag := range helpFlags(help) {
		shown[flag.name] = flag.defaults
	}
	for name, defaults := range map[string]string{
		"data-dir": "./data", "datastore": "", "bind-address": "0.0.0.0", "secure-port": "6443", "tls-cert-file": "",
		"tls-private-key-file": "", "client-ca-file": "", "token-auth-file": "", "authorization-mode": "[Node,RBAC]",
		"service-cluster-ip-range": "10.0.0.0/24", "enable-admission-plugins": "", "disable-admission-plugins": "",
		"runtime-config": "", "feature-gates": "", "event-ttl": "1h0m0s", "logging-format": "text", "v": "",
	} {
		if got, ok := shown[name]; !ok || got != defaults {
			t.Errorf("the help shows --%s: %v, with default %q", name, ok, got)
		}
	}
	for _, line := range strings.Split(help, "\n") {
		if len(line) > 120 {
			t.Errorf("a line of %d characters: %s", len(line), line)
		}
	}
	refuses(t, `unknown command "server" for "sqube"`, []string{"server"})
	refuses(t, `sqube certs takes only flags, not "sqube.db" (see sqube certs --help)`, []string{"certs", "sqube.db"})
	refuses(t, "give one FILE, or --follow and a place", []string{"backup", "a", "b"})
	refuses(t, "want a folder for the programs, such as sqube envtest bin/envtest", []string{"envtest"})
	refuses(t, "want one SOURCE: a backup, or a database", []string{"restore"})
	refuses(t, "want one SOURCE: a file, a DSN or a URL", []string{"import", "--from", "etcd", "a", "b"})
}

// helpFlag is a flag in the help of serve, with its default if that is not zero.
type helpFlag struct{ name, defaults string }

// helpFlags returns the flags in a help text.
func helpFlags(help string) (flags []helpFlag) {
	begins := regexp.MustCompile(`(?m)^(?: {6}|  -v, )--([a-z0-9-]+)`) // wrapped lines are indented more
	ends := regexp.MustCompile(`\(default (.*)\)$`)
	for section := range strings.SplitSeq(help, "\n\n") {
		found := begins.FindAllStringSubmatchIndex(section, -1)
		for i, at := range found {
			end := len(section)
			if i+1 < len(found) {
				end = found[i+1][0]
			}
			flag := helpFlag{name: section[at[2]:at[3]]}
			text := strings.Join(strings.Fields(section[at[0]:end]), " ")
			if match := ends.FindStringSubmatch(text); match != nil && match[1] != "[]" {
				flag.defaults = match[1]
				if unquoted, err := strconv.Unquote(match[1]); err == nil {
					flag.defaults = unquoted
				}
			}
			flags = append(flags, flag)
		}
	}
	return flags
}

// TestDefaultPort checks that the server listens on 6443 by default. The address is a loopback address that no other process
// uses, since it is derived from the process ID.
func TestDefaultPort(t *testing.T) {
	t.Parallel()
	address := loopbackAddress()
	dataDir := filepath.Join(t.TempDir(), "data")
	s := &sqube.Server{
		Process: sqube.Command(t, []string{"serve", "--data-dir", dataDir, "--bind-address", address}),
		URL:     "https://" + address + ":6443", Kubeconfig: filepath.Join(dataDir, "admin.kubeconfig"),
	}
	s.WaitReady(t)
	if _, err := client(t, s.Kubeconfig).CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Errorf("with its own kubeconfig: %v", err)
	}
	want := "sqube serves https://" + address + ":6443 from sqlite://" + dataDir + "/sqube.db\n  export KUBECONFIG=" + s.Kubeconfig + "\n  kubectl get namespaces\n"
	harness.Eventually(t, "it prints how to use it", func() bool { return s.Stdout(t) == want })
	if out := kubectlPrints(t, s.Kubeconfig, "get", "namespaces", "--no-headers"); strings.Count(out, " Active ") != 4 {
		t.Errorf("kubectl get namespaces prints\n%s", out)
	}
}

func loopbackAddress() string {
	pid := os.Getpid()
	return fmt.Sprintf("127.%d.%d.%d", 1+pid>>16&0x7f, pid>>8&0xff, 1+pid&0x7f)
}
