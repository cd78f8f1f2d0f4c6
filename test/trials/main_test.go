package trials

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sqube/sqube/server/simnodes"
	"github.com/sqube/sqube/server/trial"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/fakenode"
	"github.com/sqube/sqube/test/harness/sqube"
)

// cluster is a server whose cluster changes are tried on.
type cluster struct {
	*sqube.Server
	client kubernetes.Interface
}

// newCluster starts a server with a control plane, nodes n1 to n3 with two CPUs each, and a namespace shop.
func newCluster(t *testing.T, engine harness.Engine) *cluster {
	t.Helper()
	s := sqube.Start(t, sqube.Options{Datastore: engine.Datastore, Args: []string{"--control-plane"}})
	client, err := kubernetes.NewForConfig(s.Config(t))
	harness.Must(t, err)
	fakenode.Join(t, s.Config(t), simnodes.Options{Names: []string{"n1", "n2", "n3"}, Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}})
	c := &cluster{s, client}
	c.kubectl(t, "create", "namespace", "shop")
	return c
}

// kubectl runs kubectl on the cluster as its administrator.
func (c *cluster) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return c.program(t, sqube.KubectlBinary(t), args...)
}

func (c *cluster) program(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = sqube.KubectlEnv(t, c.Kubeconfig)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// as returns the kubeconfig of another user.
func (c *cluster) as(t *testing.T, user string) string {
	t.Helper()
	stdout, stderr, code := sqube.Run(t, []string{"kubeconfig", "--user", user, "--data-dir", c.DataDir})
	if code != 0 {
		t.Fatalf("sqube kubeconfig: %s", stderr)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	harness.Must(t, os.WriteFile(file, []byte(stdout), 0o600))
	return file
}

// tried is what sqube try has answered.
type tried struct {
	trial.Result
	code   int
	stderr string
}

// try runs sqube try on the cluster with -o json. Its temporary files must be gone at the end.
func (c *cluster) try(t *testing.T, args ...string) *tried {
	t.Helper()
	return try(t, append([]string{"--kubeconfig", c.Kubeconfig}, args...)...)
}

func try(t *testing.T, args ...string) *tried {
	t.Helper()
	temporary := t.TempDir()
	stdout, stderr, code := sqube.Run(t, append([]string{"try", "-o", "json"}, args...), inFolder(t, temporary))
	left, err := os.ReadDir(temporary)
	harness.Must(t, err)
	if len(left) > 0 {
		t.Errorf("sqube try %v leaves %v behind", args, left)
	}
	r := &tried{code: code, stderr: stderr}
	if code != 2 {
		if err := json.Unmarshal([]byte(stdout), &r.Result); err != nil {
			t.Fatalf("sqube try %v prints %s%s: %v", args, stdout, stderr, err)
		}
	}
	return r
}

// inFolder sets the folder of temporary files, and where kubectl is.
func inFolder(t *testing.T, folder string) func(*exec.Cmd) {
	kubectl := filepath.Dir(sqube.KubectlBinary(t))
	return func(cmd *exec.Cmd) {
		cmd.Env = append(cmd.Env, "TMPDIR="+folder, "XDG_RUNTIME_DIR=", "HOME="+t.TempDir(), "PATH="+kubectl+":"+os.Getenv("PATH"))
	}
}

// ends fails the test unless the trial ended so, which its exit code says, too.
func (r *tried) ends(t *testing.T, verdict trial.Verdict) {
	t.Helper()
	code := 1
	if verdict == trial.AtRest {
		code = 0
	}
	if r.Verdict != verdict || r.code != code {
		t.Errorf("the verdict is %s, and the exit code %d, want %s and %d: %s %+v %s", r.Verdict, r.code, verdict, code, r.Reasons, r.Refused, r.stderr)
	}
}

// changes reports whether something was done to an object.
func (r *tried) changes(kind, name string) bool {
	var found func(all []*trial.Object) bool
	found = func(all []*trial.Object) bool {
		return slices.ContainsFunc(all, func(o *trial.Object) bool {
			return o.Kind == kind && strings.HasPrefix(o.Name, name) || found(o.Caused)
		})
	}
	return found(r.Tree) || found(r.Elsewhere)
}

// write writes a file of a test.
func write(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "change.yaml")
	harness.Must(t, os.WriteFile(file, []byte(content), 0o600))
	return file
}

// state returns what a trial must not change: the specs of the cluster.
func (c *cluster) state(t *testing.T) string {
	t.Helper()
	return c.kubectl(t, "get", "deployments,nodes,configmaps,secrets", "-A", "-o", `jsonpath={range .items[*]}{.kind}{.metadata.name}{.metadata.uid}{.spec}{"\n"}{end}`)
}

// at sets the home folder of a command.
func at(home string) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "HOME="+home, "XDG_CACHE_HOME=") }
}

// can returns an error unless a user may create ConfigMaps.
func (c *cluster) can(t *testing.T, user string) error {
	t.Helper()
	review, err := c.client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "shop", Verb: "create", Resource: "configmaps"},
	}}, metav1.CreateOptions{})
	harness.Must(t, err)
	if !review.Status.Allowed {
		return errors.New(review.Status.Reason)
	}
	return nil
}
