package controlplane

import (
	"bytes"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiremotecommand "k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestJoin joins a machine as a node with the output of `sqube token create --print-join`, like kubeadm and the kubelet.
func TestJoin(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	s := sqube.Start(t, sqube.Options{Datastore: harness.SQLite(t), DataDir: data, Args: append(sqube.RightsSuffice(t),
		"--control-plane", "--kubelet-certificate-authority="+filepath.Join(data, "pki", "ca.crt"),
		"--kubelet-preferred-address-types=InternalIP,Hostname",
	)})
	admin := client(t, s)
	command := strings.Fields(printed(t, "token", "create", "--kubeconfig", s.Kubeconfig, "--server", s.URL, "--print-join"))
	if len(command) != 7 || command[0] != "kubeadm" || "https://"+command[2] != s.URL {
		t.Fatalf("it prints %q", command)
	}
	// It listens on 127.0.0.1 only, which can't be advertised.
	refused, err := exec.Command(sqube.Binary(t), "token", "create", "--kubeconfig", s.Kubeconfig, "--print-join").CombinedOutput()
	if err == nil || !strings.Contains(string(refused), "or give its address for nodes with --server") {
		t.Errorf("without --server, it prints %q", refused)
	}
	m := machine{name: "node-1", server: s.URL}
	m.join(t, command[4], command[6])
	deploy(t, admin, "web", 2)
	m.answers(t, s, admin)
	m.isLimited(t, admin)
	tokensGo(t, s, command[4])
	s.Stop(t)
}

// tokensGo lists bootstrap tokens and deletes them, by id and as a whole.
func tokensGo(t *testing.T, s *sqube.Server, token string) {
	t.Helper()
	forever := strings.TrimSpace(printed(t, "token", "create", "--kubeconfig", s.Kubeconfig, "--server", s.URL, "--ttl=0", "--description=a board"))
	listed := printed(t, "token", "list", "--kubeconfig", s.Kubeconfig)
	for token, row := range map[string]string{
		token:   ` +20\S+Z +23h +authentication,signing +- +system:bootstrappers:kubeadm:default-node-token\n`,
		forever: ` +never +- +authentication,signing +a board +system:bootstrappers:kubeadm:default-node-token\n`,
	} {
		if !regexp.MustCompile(regexp.QuoteMeta(token) + row).MatchString(listed) {
			t.Errorf("%s is listed as\n%s", token, listed)
		}
	}
	id, _, _ := strings.Cut(forever, ".")
	if out := printed(t, "token", "delete", "--kubeconfig", s.Kubeconfig, token, id); strings.Count(out, " is deleted\n") != 2 {
		t.Errorf("deleting them prints %q", out)
	}
	if listed := printed(t, "token", "list", "--kubeconfig", s.Kubeconfig); strings.Count(listed, "\n") != 1 {
		t.Errorf("after their deletion, the list is\n%s", listed)
	}
	for wrong, want := range map[string]string{id: "there is no token " + id, "no": `"no" is not a token like`} {
		if out, err := exec.Command(sqube.Binary(t), "token", "delete", "--kubeconfig", s.Kubeconfig, wrong).CombinedOutput(); err == nil || !strings.Contains(string(out), want) {
			t.Errorf("deleting %s prints %q", wrong, out)
		}
	}
}

// printed runs a command of sqube and returns its output.
func printed(t *testing.T, args ...string) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.Command(sqube.Binary(t), args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("sqube %s: %v: %s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

// answers reads the log of a Pod on the machine and runs commands in it, over every protocol.
func (m *machine) answers(t *testing.T, s *sqube.Server, admin kubernetes.Interface) {
	pods, err := admin.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	harness.Must(t, err)
	pod := pods.Items[0].Name
	environment := sqube.KubectlEnv(t, s.Kubeconfig)
	kubectl := func(in string, args ...string) (out string, code int) {
		t.Helper()
		cmd := exec.Command(sqube.KubectlBinary(t), args...)
		cmd.Env, cmd.Stdin = environment, strings.NewReader(in)
		text, err := cmd.CombinedOutput()
		var ended *exec.ExitError
		if err != nil && !errors.As(err, &ended) {
			t.Fatal(err)
		}
		return string(text), cmd.ProcessState.ExitCode()
	}
	if out, code := kubectl("", "logs", pod); code != 0 || out != "default/"+pod+"/web\n" {
		t.Errorf("kubectl logs exits with %d: %s", code, out)
	}
	for _, websockets := range []string{"true", "false"} {
		environment = append(environment, "KUBECTL_REMOTE_COMMAND_WEBSOCKETS="+websockets)
		if out, code := kubectl("some words", "exec", "-i", pod, "--", "cat"); code != 0 || out != "some words" {
			t.Errorf("kubectl exec exits with %d: %s", code, out)
		}
		if out, code := kubectl("", "exec", pod, "--", "exit", "3"); code != 3 {
			t.Errorf("kubectl exec of a command that exits with 3 exits with %d: %s", code, out)
		}
	}
	executors(t, s, pod)
}

// executors runs a command over each protocol. Kubectl would fall back to the other one.
func executors(t *testing.T, s *sqube.Server, pod string) {
	config := s.Config(t)
	path, err := url.Parse(s.URL + "/api/v1/namespaces/default/pods/" + pod + "/exec?command=echo&command=hello&stdout=true")
	harness.Must(t, err)
	websocket, err := remotecommand.NewWebSocketExecutorForProtocols(config, http.MethodGet, path.String(), apiremotecommand.StreamProtocolV5Name)
	harness.Must(t, err)
	spdy, err := remotecommand.NewSPDYExecutor(config, http.MethodPost, path)
	harness.Must(t, err)
	for name, executor := range map[string]remotecommand.Executor{"WebSocket": websocket, "SPDY": spdy} {
		var out bytes.Buffer
		if err := executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &out}); err != nil || out.String() != "hello\n" {
			t.Errorf("exec over %s: %v, %q", name, err, out.String())
		}
	}
}

// isLimited requests serving certificates that are not the node's, and what another node may do.
func (m *machine) isLimited(t *testing.T, admin kubernetes.Interface) {
	c := m.client(t, nil)
	var names []string
	for _, template := range []*x509.CertificateRequest{
		{DNSNames: []string{"kubernetes.default.svc"}},
		{IPAddresses: []net.IP{net.ParseIP("192.0.2.8")}},
	} {
		name, _ := m.ask(t, c, certificatesv1.KubeletServingSignerName, certificatesv1.UsageServerAuth, template)
		names = append(names, name)
	}
	// Once a later, valid request is approved, the earlier ones have been processed.
	m.servingCertificate(t)
	for _, name := range names {
		request, err := admin.CertificatesV1().CertificateSigningRequests().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || len(request.Status.Conditions) > 0 {
			t.Errorf("a request that is not the node's: %v, %v", request.Status.Conditions, err)
		}
	}
	if _, err := c.CoreV1().Secrets(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a node that lists Secrets: %v", err)
	}
}
