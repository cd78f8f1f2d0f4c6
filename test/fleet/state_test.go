package fleet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sqube/sqube/server/fleet/v1alpha1"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// widgets are custom resources, one with the subresource status and one without.
const widgets = `{"apiVersion": "v1", "kind": "List", "items": [%s, %s]}`

const definition = `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "%[1]ss.example.com"}, "spec": {
	"group": "example.com", "scope": "Namespaced", "names": {"kind": "%[1]s", "plural": "%[1]ss", "singular": "%[1]s"},
	"versions": [{"name": "v1", "served": true, "storage": true, "subresources": {%[2]s},
		"schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}`

// stateOf asks for the state of a cluster.
func stateOf(t *testing.T, c kubernetes.Interface, name, query string) (*v1alpha1.ClusterState, error) {
	t.Helper()
	request := c.CoreV1().RESTClient().Get().RequestURI("/apis/fleet.sqube.io/v1alpha1/namespaces/default/clusters/" + name + "/state?" + query)
	text, err := request.DoRaw(t.Context())
	if err != nil {
		return nil, err
	}
	compact := &bytes.Buffer{}
	harness.Must(t, json.Compact(compact, text))
	state := &v1alpha1.ClusterState{}
	return state, json.Unmarshal(compact.Bytes(), state)
}

// told returns what a state says in short.
func told(state *v1alpha1.ClusterState) (all []string) {
	for _, o := range state.Items {
		all = append(all, strings.Join([]string{string(o.Operation), o.Resource, o.Namespace + "/" + o.Name, o.User}, " "))
	}
	return all
}

func expectTold(t *testing.T, state *v1alpha1.ClusterState, want ...string) {
	t.Helper()
	if got := told(state); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the state tells of\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestState reads what differs in a fork from when it was forked, and what exists in a cluster that was not.
func TestState(t *testing.T) {
	t.Parallel()
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		c := startCommands(t, engine)
		host := clientOf(t, c.Kubeconfig)
		c.run(t, "create", "base")
		base := c.kubeconfig(t, "base")
		file := filepath.Join(t.TempDir(), "widgets.json")
		harness.Must(t, os.WriteFile(file, fmt.Appendf(nil, widgets, fmt.Sprintf(definition, "widget", `"status": {}`), fmt.Sprintf(definition, "gadget", "")), 0o600))
		kubectl(t, base, "apply", "-f", file)
		kubectl(t, base, "wait", "--for=condition=Established", "crd", "widgets.example.com", "gadgets.example.com")
		makeOf(t, base, "widget", "w", `"spec": {"size": 1}`)
		makeOf(t, base, "gadget", "g", `"status": {"on": false}`)
		for _, name := range []string{"changed", "deleted", "recreated", "touched"} {
			kubectl(t, base, "create", "configmap", name, "--from-literal", "key=old")
		}
		kubectl(t, base, "create", "secret", "generic", "door", "--from-literal", "code=1234")
		kubectl(t, base, "create", "deployment", "web", "--image", "web:1")
		state, err := stateOf(t, host, "base", "")
		harness.Must(t, err)
		const by = " kubernetes-admin"
		expectTold(t, state, "created configmaps default/changed"+by, "created configmaps default/deleted"+by, "created configmaps default/recreated"+by, "created configmaps default/touched"+by,
			"created customresourcedefinitions /gadgets.example.com"+by, "created customresourcedefinitions /widgets.example.com"+by, "created deployments default/web"+by,
			"created gadgets default/g"+by, "created secrets default/door"+by, "created widgets default/w"+by)

		c.run(t, "fork", "base", "fork")
		state, err = stateOf(t, host, "fork", "")
		harness.Must(t, err)
		expectTold(t, state)
		fork := c.kubeconfig(t, "fork")
		changeFork(t, fork)
		state, err = stateOf(t, host, "fork", "")
		harness.Must(t, err)
		expectTold(t, state, "updated configmaps default/changed"+by, "deleted configmaps default/deleted"+by, "created configmaps default/new"+by, "updated configmaps default/recreated"+by,
			"updated deployments default/web"+by, "deleted gadgets default/g"+by, "updated secrets default/door"+by, "updated widgets default/w"+by)
		checkFields(t, state)
		pages(t, host, state)
		if state, err = stateOf(t, host, "fork", "since="+state.ResourceVersion); err != nil || len(state.Items) > 0 {
			t.Errorf("nothing has happened since: %v, %v", told(state), err)
		}
		hiddenInState(t, c, host)
		printed(t, c)
		c.run(t, "sleep", "fork")
		if state, err = stateOf(t, host, "fork", "owned=true&status=true"); err != nil || len(state.Items) < 9 {
			t.Errorf("with all that differs, asleep before: %v, %v", told(state), err)
		}
		for query, want := range map[string]func(error) bool{
			"since=x": apierrors.IsBadRequest, "since=999999999": apierrors.IsBadRequest, "of=1": apierrors.IsBadRequest, "limit=0": apierrors.IsBadRequest,
			"status=2": apierrors.IsBadRequest, "continue=x": apierrors.IsBadRequest,
		} {
			if _, err := stateOf(t, host, "fork", query); !want(err) {
				t.Errorf("%s gets %v", query, err)
			}
		}
		jane := filepath.Join(t.TempDir(), "jane")
		text, _, _ := sqube.Run(t, []string{"kubeconfig", "--data-dir", c.DataDir, "--user", "jane"})
		harness.Must(t, os.WriteFile(jane, []byte(text), 0o600))
		if _, err := stateOf(t, clientOf(t, jane), "fork", ""); !apierrors.IsForbidden(err) {
			t.Errorf("jane gets %v", err)
		}
	})
}

// makeOf makes a custom resource.
func makeOf(t *testing.T, kubeconfig, kind, name, fields string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	harness.Must(t, os.WriteFile(file, fmt.Appendf(nil, `{"apiVersion": "example.com/v1", "kind": %q, "metadata": {"name": %q}, %s}`, kind, name, fields), 0o600))
	kubectl(t, kubeconfig, "create", "-f", file)
}

// changeFork changes objects in a fork, some of them back to what they were.
func changeFork(t *testing.T, fork string) {
	patch := func(of, body string, args ...string) {
		t.Helper()
		kubectl(t, fork, append([]string{"patch", of, "--type", "merge", "-p", body}, args...)...)
	}
	patch("configmap/changed", `{"data": {"key": "new"}}`)
	patch("configmap/changed", `{"data": {"key": "newest", "more": "value"}}`)
	patch("configmap/touched", `{"data": {"key": "other"}}`)
	patch("configmap/touched", `{"data": {"key": "old"}}`)
	kubectl(t, fork, "delete", "configmap", "deleted", "recreated")
	for _, name := range []string{"recreated", "new", "gone"} {
		kubectl(t, fork, "create", "configmap", name, "--from-literal", "key=old")
	}
	kubectl(t, fork, "delete", "configmap", "gone")
	kubectl(t, fork, "delete", "gadget", "g")
	patch("widget/w", `{"spec": {"size": 12345678901234567}}`)
	patch("widget/w", `{"status": {"seen": 1}}`, "--subresource", "status")
	patch("secret/door", `{"stringData": {"code": "4321"}}`)
	patch("deployment/web", `{"spec": {"template": {"spec": {"containers": [{"name": "web", "image": "web:2"}]}}}}`)
	patch("deployment/web", `{"status": {"replicas": 1}}`, "--subresource", "status")
}

// checkFields compares some of the differences with what changeFork did.
func checkFields(t *testing.T, state *v1alpha1.ClusterState) {
	t.Helper()
	for _, o := range state.Items {
		var changed []string
		for _, f := range o.Changed {
			changed = append(changed, fmt.Sprintf("%s: %s → %s", f.Path, f.From, f.To))
		}
		want := map[string]struct{ changed, patch string }{
			"changed":   {`.data.key: "old" → "newest"; .data.more:  → "value"`, `{"data":{"key":"newest","more":"value"}}`},
			"recreated": {"", "{}"},
			"new":       {"", `{"apiVersion":"v1","data":{"key":"old"},"kind":"ConfigMap","metadata":{"name":"new","namespace":"default"}}`},
			"deleted":   {"", ""},
			"g":         {"", ""},
			"w":         {".spec.size: 1 → 12345678901234567", `{"spec":{"size":12345678901234567}}`},
			"door":      {".data.code: (4 bytes) → (4 bytes)", `{"data":{"code":"(4 bytes, after)"}}`},
		}
		if w, ok := want[o.Name]; ok && (strings.Join(changed, "; ") != w.changed || string(o.Patch) != w.patch) {
			t.Errorf("%s changed %s, and the patch is %s", o.Name, changed, o.Patch)
		}
		if o.Recreated != (o.Name == "recreated") || o.UID == "" || o.Kind == "" || o.APIVersion == "" || (o.ResourceVersion == "") != (o.Operation == v1alpha1.Deleted) || o.Time.IsZero() {
			t.Errorf("%s is described as %+v", o.Name, o)
		}
	}
}

// pages reads the same state in pages, though something happens in between.
func pages(t *testing.T, host kubernetes.Interface, whole *v1alpha1.ClusterState) {
	t.Helper()
	all := &v1alpha1.ClusterState{}
	for token, n := "", 0; ; n++ {
		page, err := stateOf(t, host, "fork", "limit=3&continue="+token)
		harness.Must(t, err)
		if page.ResourceVersion != whole.ResourceVersion || page.Since != whole.Since || len(page.Items) > 3 {
			t.Errorf("a page of the state %s is of %s since %s and has %d objects", whole.ResourceVersion, page.ResourceVersion, page.Since, len(page.Items))
		}
		all.Items = append(all.Items, page.Items...)
		if token = page.Continue; token == "" {
			break
		}
	}
	expectTold(t, all, told(whole)...)
}

// hiddenInState gives a user who may read states the right to read Secrets in the cluster, too.
func hiddenInState(t *testing.T, c *commands, host kubernetes.Interface) {
	t.Helper()
	inside := clientOf(t, c.kubeconfig(t, "fork"))
	subject := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "jack"}
	_, err := host.RbacV1().Roles("default").Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "reviewer"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"fleet.sqube.io"}, Resources: []string{"clusters/state"}, Verbs: []string{"get"}},
	}}, metav1.CreateOptions{})
	harness.Must(t, err)
	_, err = host.RbacV1().RoleBindings("default").Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "reviewer"}, Subjects: []rbacv1.Subject{subject},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reviewer"}}, metav1.CreateOptions{})
	harness.Must(t, err)
	path := filepath.Join(t.TempDir(), "jack")
	text, _, _ := sqube.Run(t, []string{"kubeconfig", "--data-dir", c.DataDir, "--user", "jack"})
	harness.Must(t, os.WriteFile(path, []byte(text), 0o600))
	jack := clientOf(t, path)
	patch := func() (string, error) {
		state, err := stateOf(t, jack, "fork", "")
		if err != nil {
			return "", err
		}
		for _, o := range state.Items {
			if o.Resource == "secrets" {
				return string(o.Patch), nil
			}
		}
		return "", nil
	}
	harness.Eventually(t, "jack may read the state, and no Secrets", func() bool {
		got, err := patch()
		return err == nil && got == `{"data":{"code":"(4 bytes, after)"}}`
	})
	_, err = inside.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "jack"}, Subjects: []rbacv1.Subject{subject},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"}}, metav1.CreateOptions{})
	harness.Must(t, err)
	harness.Eventually(t, "jack may read Secrets, too", func() bool {
		got, err := patch()
		return err == nil && got == `{"data":{"code":"NDMyMQ=="}}`
	})
}

// printed reads the state by the command.
func printed(t *testing.T, c *commands) {
	t.Helper()
	text := c.run(t, "state", "fork")
	for _, want := range []string{"deleted  configmaps default/deleted by kubernetes-admin at ", "updated  widgets.example.com default/w by kubernetes-admin at ", "\n    .spec.size: 1 → 12345678901234567\n",
		"recreated (deleted and created again) by "} {
		if !strings.Contains(text, want) {
			t.Errorf("sqube cluster state does not print %q but\n%s", want, text)
		}
	}
	var state v1alpha1.ClusterState
	harness.Must(t, json.Unmarshal([]byte(c.run(t, "state", "fork", "-o", "json")), &state))
	if state.Kind != "ClusterState" || len(state.Items) < 8 {
		t.Errorf("sqube cluster state -o json prints %+v", state)
	}
}

// TestExamples runs the examples of programs that fork a cluster many times.
func TestExamples(t *testing.T) {
	t.Parallel()
	c := startCommands(t, harness.Engine{})
	c.run(t, "create", "base")
	program := filepath.Join(t.TempDir(), "evaluate")
	if out, err := exec.Command("go", "build", "-o", program, "./examples").CombinedOutput(); err != nil {
		t.Fatalf("building the example: %v\n%s", err, out)
	}
	const count = "64"
	cmd := exec.Command(program, "default", "base", count)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig)
	evaluates(t, c, cmd, "kubernetes-admin")

	ca := filepath.Join(t.TempDir(), "ca.crt")
	config := c.Config(t)
	harness.Must(t, os.WriteFile(ca, config.CAData, 0o600))
	kubectl(t, c.Kubeconfig, "create", "serviceaccount", "evaluator")
	kubectl(t, c.Kubeconfig, "create", "clusterrolebinding", "evaluator", "--clusterrole", "cluster-admin", "--serviceaccount", "default:evaluator")
	cmd = exec.Command("python3", "examples/evaluate.py", "default", "base", count)
	cmd.Env = append(os.Environ(), "SQUBE_URL="+c.URL, "SQUBE_CA_FILE="+ca, "SQUBE_TOKEN="+strings.TrimSpace(kubectl(t, c.Kubeconfig, "create", "token", "evaluator")))
	evaluates(t, c, cmd, "host:system:serviceaccount:default:evaluator")
}

// evaluates runs an example, and expects that it leaves no fork.
func evaluates(t *testing.T, c *commands, cmd *exec.Cmd, user string) {
	t.Helper()
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, stderr.String())
	}
	lines := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		lines[line] = true
	}
	for i := range 64 {
		if want := fmt.Sprintf("%[1]d\tcreated configmaps default/made-%[1]d by %[2]s\n", i, user); !lines[want] {
			t.Errorf("it does not print %q", want)
		}
	}
	if len(lines) != 64 {
		t.Errorf("it prints\n%s", out)
	}
	harness.Eventually(t, "only the original is left", func() bool { return c.run(t, "list", "-o", "name") == "cluster.fleet.sqube.io/base\n" })
}
