package scenarios

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// cluster is what the scenarios of one engine share.
type cluster struct {
	kubernetes.Interface
	config  *rest.Config
	kubectl string
	env     []string // of kubectl
}

func newCluster(t *testing.T, s *sqube.Server) *cluster {
	t.Helper()
	config := s.Config(t)
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	harness.Must(t, err)
	return &cluster{client, config, sqube.KubectlBinary(t), sqube.KubectlEnv(t, s.Kubeconfig)}
}

// user runs a scenario: an administrator with kubectl, in the scenario's own namespace.
type user struct {
	*testing.T
	*cluster
	namespace string
}

// user returns a user with a new namespace in which Pods can be created.
func (c *cluster) user(t *testing.T, namespace string) *user {
	t.Helper()
	u := &user{t, c, namespace}
	if _, err := u.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	u.until("there is a service account", func() (string, bool) {
		_, err := u.CoreV1().ServiceAccounts(namespace).Get(t.Context(), "default", metav1.GetOptions{})
		return errorText(err), err == nil
	})
	return u
}

// try runs kubectl in the namespace, with input on its standard input, and returns all that it prints.
func (u *user) try(input string, args ...string) (string, error) {
	var printed bytes.Buffer
	cmd := u.command(input, args...)
	cmd.Stdout, cmd.Stderr = &printed, &printed
	err := cmd.Run()
	return strings.TrimSpace(printed.String()), err
}

// run runs kubectl, which must succeed, and returns its standard output, which has no warnings.
func (u *user) run(args ...string) string {
	u.Helper()
	var warnings bytes.Buffer
	cmd := u.command("", args...)
	cmd.Stderr = &warnings
	out, err := cmd.Output()
	if err != nil {
		u.Fatalf("kubectl %s: %v: %s%s", strings.Join(args, " "), err, out, warnings.String())
	}
	return strings.TrimSpace(string(out))
}

func (u *user) command(input string, args ...string) *exec.Cmd {
	if input != "" {
		input = "---\n" + input // kubectl takes input that starts with a brace for JSON
	}
	cmd := exec.CommandContext(u.Context(), u.kubectl, append([]string{"--namespace", u.namespace}, args...)...)
	cmd.Env, cmd.Stdin = u.env, strings.NewReader(input)
	return cmd
}

// apply applies the manifest.
func (u *user) apply(manifest string) {
	u.Helper()
	if out, err := u.try(manifest, "apply", "--validate=strict", "-f", "-"); err != nil {
		u.Fatalf("kubectl apply: %v: %s", err, out)
	}
}

// refused returns why the server rejects the manifest.
func (u *user) refused(manifest string) string {
	u.Helper()
	out, err := u.try(manifest, "create", "-f", "-")
	if err == nil {
		u.Fatalf("it was accepted: %s", out)
	}
	return out
}

// contains fails the scenario unless printed has all words.
func (u *user) contains(printed string, words ...string) {
	u.Helper()
	for _, word := range words {
		if !strings.Contains(printed, word) {
			u.Errorf("%q is not in %q", word, printed)
		}
	}
}

// until waits until holds returns true. On a timeout, it prints what holds saw.
func (u *user) until(what string, holds func() (seen string, done bool)) {
	u.Helper()
	deadline := time.Now().Add(harness.Patience)
	for {
		seen, done := holds()
		if done {
			return
		}
		if time.Now().After(deadline) {
			u.Fatalf("timed out waiting until %s; last seen: %s", what, seen)
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-u.Context().Done():
			return
		}
	}
}

// event waits for an event of the reason on the object.
func (u *user) event(reason, object string) {
	u.Helper()
	u.until("there is an event "+reason+" on "+object, func() (string, bool) {
		events, err := u.CoreV1().Events(u.namespace).List(u.Context(), metav1.ListOptions{FieldSelector: "reason=" + reason})
		if err != nil {
			return err.Error(), false
		}
		for i := range events.Items {
			if strings.HasPrefix(events.Items[i].InvolvedObject.Name, object) {
				return "", true
			}
		}
		return u.run("get", "events"), false
	})
}

// pods lists the Pods that a selector selects.
func (u *user) pods(selector string) []corev1.Pod {
	u.Helper()
	pods, err := u.CoreV1().Pods(u.namespace).List(u.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		u.Fatal(err)
	}
	return pods.Items
}

// show describes the Pods, for a failure message.
func show(pods []corev1.Pod) string {
	lines := []string{"these Pods:"}
	for i := range pods {
		pod := &pods[i]
		line := pod.Name + " " + string(pod.Status.Phase) + " on " + pod.Spec.NodeName
		for _, condition := range pod.Status.Conditions {
			if condition.Status != corev1.ConditionTrue {
				line += " " + string(condition.Type) + ": " + condition.Message
			}
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
