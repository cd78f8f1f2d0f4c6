package serve

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestWholeCommands writes with the commands that write everything or nothing. Each subtest has its own namespace.
func TestWholeCommands(t *testing.T) {
	t.Parallel()
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		s := serve(t, []string{"--datastore", engine.Datastore})
		w := &whole{s.Kubeconfig, client(t, s.Kubeconfig)}
		tests := map[string]func(*testing.T){"apply": w.apply, "tx": w.tx, "helm": w.helm}
		if engine.Name == "sqlite" { // the others are about the commands
			tests["definitions"], tests["rights"], tests["refused"] = w.definitions, w.rights, w.refused
		}
		for name, test := range tests {
			t.Run(name, test)
		}
	})
}

// whole is a cluster for commands that write everything or nothing.
type whole struct {
	kubeconfig string
	c          kubernetes.Interface
}

var made = regexp.MustCompile(`transaction-[a-z0-9]{10}`)

// run runs sqube and returns its outputs, in which the names of transactions are NAME, and its exit code.
func (w *whole) run(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return w.runAs(t, w.kubeconfig, args...)
}

func (w *whole) runAs(t *testing.T, kubeconfig string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	stdout, stderr, code = sqube.Run(t, args, func(cmd *exec.Cmd) { cmd.Env = sqube.KubectlEnv(t, kubeconfig) })
	return made.ReplaceAllString(stdout, "NAME"), made.ReplaceAllString(stderr, "NAME"), code
}

// prints compares what sqube prints, its exit code being 0.
func (w *whole) prints(t *testing.T, wantOut, wantErr string, args ...string) {
	t.Helper()
	stdout, stderr, code := w.run(t, args...)
	if code != 0 || stdout != wantOut || stderr != wantErr {
		t.Fatalf("sqube %s ends with code %d and prints\n%s%s\nwant\n%s%s", strings.Join(args, " "), code, stdout, stderr, wantOut, wantErr)
	}
}

// fails compares what sqube writes to standard error, its exit code being code.
func (w *whole) fails(t *testing.T, code int, want string, args ...string) {
	t.Helper()
	stdout, stderr, got := w.run(t, args...)
	if got != code || !strings.Contains(stderr, want) {
		t.Fatalf("sqube %s ends with code %d and prints\n%s%s\nwant\n%s", strings.Join(args, " "), got, stdout, stderr, want)
	}
}

func written(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	harness.Must(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

func (w *whole) exists(t *testing.T, namespace, name string) bool {
	t.Helper()
	_, err := w.c.CoreV1().ConfigMaps(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return err == nil
}

func labelled(name, value string) string {
	return "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + ", labels: {app: shop}}\ndata: {a: \"" + value + "\"}\n"
}

const takeBack = "To take this back: sqube undo --transaction NAME\n"

// apply applies a folder, changes it, prunes, and deletes it.
func (w *whole) apply(t *testing.T) {
	makeNamespace(t, w.c, "apply")
	dir := t.TempDir()
	written(t, dir, "a.yaml", labelled("one", "1")+labelled("two", "1"))
	written(t, dir, "b.yaml", "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: robot, labels: {app: shop}}\n")
	first := []string{"apply", "-n", "apply", "-f", dir}
	stdout, stderr, code := w.run(t, append(first, "--dry-run")...)
	if code != 0 || strings.Count(stdout, "diff -u -N now/") != 3 || !strings.Contains(stdout, "+  a: \"1\"\n") || stderr != "" || w.exists(t, "apply", "one") {
		t.Fatalf("a dry run ends with code %d and prints\n%s%s", code, stdout, stderr)
	}
	w.prints(t, "serviceaccount/robot serverside-applied\nconfigmap/one serverside-applied\nconfigmap/two serverside-applied\n", takeBack, first...)
	w.prints(t, "serviceaccount/robot unchanged\nconfigmap/one unchanged\nconfigmap/two unchanged\n", "Everything was so already: nothing was written.\n", first...)
	w.prints(t, "", "There is nothing to change.\n", append(first, "--dry-run")...)

	written(t, dir, "a.yaml", labelled("one", "2"))
	makeConfigMap(t, w.c, "apply", "other") // which nobody has applied
	pruning := append(first, "--prune", "-l", "app=shop", "--prune-allowlist", "core/v1/ConfigMap")
	stdout, _, _ = w.run(t, append(pruning, "--dry-run")...)
	if strings.Count(stdout, "diff -u -N") != 2 || !strings.Contains(stdout, "-  a: \"1\"\n+  a: \"2\"\n") || !strings.Contains(stdout, "then/v1.ConfigMap.apply.two") {
		t.Errorf("a dry run prints\n%s", stdout)
	}
	w.prints(t, "serviceaccount/robot unchanged\nconfigmap/one serverside-applied\nconfigmap/two pruned\n", takeBack, pruning...)
	if w.exists(t, "apply", "two") || !w.exists(t, "apply", "other") {
		t.Error("what was applied before, and nothing else, must be pruned")
	}
	deleting := []string{"delete", "-n", "apply", "-f", dir}
	w.prints(t, "configmap/one deleted\nserviceaccount/robot deleted\n", takeBack, deleting...)
	w.fails(t, 1, "a.yaml: ConfigMap apply/one: configmaps \"one\" not found; nothing was written\n", deleting...)
	w.prints(t, "", "Everything was so already: nothing was written.\n", append(deleting, "--ignore-not-found")...)
}

func makeConfigMap(t *testing.T, c kubernetes.Interface, namespace, name string) {
	t.Helper()
	made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "shop"}}}
	_, err := c.CoreV1().ConfigMaps(namespace).Create(t.Context(), made, metav1.CreateOptions{})
	harness.Must(t, err)
}

// refused looks at what is said of files that can't be applied. Nothing is written.
func (w *whole) refused(t *testing.T) {
	makeNamespace(t, w.c, "refused")
	dir := t.TempDir()
	good := labelled("good", "1")
	for text, want := range map[string]string{
		good + "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: bad}\ndatta: {}\n":      `a.yaml: ConfigMap refused/bad: failed to create typed patch object (refused/bad; /v1, Kind=ConfigMap): .datta: field not declared in schema; nothing was written`,
		good + "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: Bad}\n":                 `a.yaml: ConfigMap refused/Bad: ConfigMap "Bad" is invalid: metadata.name: Invalid value: "Bad": a lowercase RFC 1123 subdomain`,
		good + "---\napiVersion: example.com/v1\nkind: Unknown\nmetadata: {name: x}\n":         `a.yaml: Unknown x: no matches for kind "Unknown" in version "example.com/v1"; nothing was written`,
		good + "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: other}\n": `a.yaml: ConfigMap other/x is not in the namespace refused of --namespace; nothing was written`,
		good + good: `a.yaml: ConfigMap good is also in `,
		"a: 1\n":    `Object 'Kind' is missing`,
	} {
		written(t, dir, "a.yaml", text)
		w.fails(t, 1, want, "apply", "-n", "refused", "-f", dir)
		if w.exists(t, "refused", "good") {
			t.Fatalf("a part of this was written:\n%s", text)
		}
	}
	w.fails(t, 1, "sqube: want --filename or --kustomize\n", "apply")
	w.fails(t, 1, "sqube: --prune needs either --selector or --all\n", "apply", "-f", dir, "--prune")
	written(t, dir, "kustomization.yaml", "resources: [a.yaml]\nnamePrefix: my-\nnamespace: refused\n")
	written(t, dir, "a.yaml", good)
	w.prints(t, "configmap/my-good serverside-applied\n", "To take this back: sqube undo --transaction mine\n", "apply", "-k", dir, "--name", "mine")
	w.fails(t, 1, "it was committed before; nothing was written now\n", "apply", "-k", dir, "--name", "mine")
}

// definitions applies a definition together with an object of it.
func (w *whole) definitions(t *testing.T) {
	file := written(t, t.TempDir(), "a.yaml", `apiVersion: example.com/v1
kind: Widget
metadata: {name: mine, namespace: default}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  names: {kind: Widget, plural: widgets}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`)
	stdout, stderr, _ := w.run(t, "apply", "-f", file, "--dry-run")
	if !strings.Contains(stdout, "+  group: example.com\n") || !strings.Contains(stderr, "Widget default/mine would be applied when its definition is established") {
		t.Errorf("a dry run prints\n%s%s", stdout, stderr)
	}
	w.prints(t, "customresourcedefinition.apiextensions.k8s.io/widgets.example.com serverside-applied\nwidget.example.com/mine serverside-applied\n",
		"The definitions were applied first, as transaction NAME, since objects of theirs need them.\n"+takeBack+takeBack, "apply", "-f", file)
	w.prints(t, "widget.example.com/mine deleted\ncustomresourcedefinition.apiextensions.k8s.io/widgets.example.com deleted\n", takeBack, "delete", "-f", file)
}

// rights applies as a user who may write in one namespace, where one object is too many.
func (w *whole) rights(t *testing.T) {
	makeNamespace(t, w.c, "rights")
	f := &undone{kubeconfig: w.kubeconfig}
	jane := f.as(t, "jane")
	binding := written(t, t.TempDir(), "a.yaml", "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: jane, namespace: rights}\n"+
		"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}\nsubjects: [{kind: User, name: jane, apiGroup: rbac.authorization.k8s.io}]\n")
	w.prints(t, "rolebinding.rbac.authorization.k8s.io/jane serverside-applied\n", takeBack, "apply", "-f", binding)
	dir := t.TempDir()
	written(t, dir, "a.yaml", labelled("one", "1"))
	args := []string{"apply", "-n", "rights", "-f", dir}
	harness.Retry(t, "jane may apply in the namespace", func() error {
		if stdout, stderr, code := w.runAs(t, jane, args...); code != 0 || stdout != "configmap/one serverside-applied\n" {
			return fmt.Errorf("code %d, %s%s", code, stdout, stderr)
		}
		return nil
	})
	written(t, dir, "b.yaml", labelled("two", "1")+"---\napiVersion: v1\nkind: ResourceQuota\nmetadata: {name: quota}\n")
	_, stderr, code := w.runAs(t, jane, args...)
	if code != 1 || !strings.Contains(stderr, `b.yaml: ResourceQuota rights/quota: resourcequotas "quota" is forbidden: User "jane" cannot patch resource`) || w.exists(t, "rights", "two") {
		t.Errorf("code %d, %s", code, stderr)
	}
	stdout, stderr, code := w.runAs(t, jane, "tx", "-n", "rights", "--", "sh", "-c", "kubectl create configmap three && kubectl create namespace rights-2")
	if code != 1 || !strings.Contains(stderr, `User "jane" cannot create resource "namespaces"`) || w.exists(t, "rights", "three") {
		t.Errorf("code %d, %s%s", code, stdout, stderr)
	}
}

// tx runs kubectl in transactions.
func (w *whole) tx(t *testing.T) {
	makeNamespace(t, w.c, "tx")
	outside := "KUBECONFIG=" + w.kubeconfig + " kubectl get configmap -n tx one two --ignore-not-found -o name"
	w.prints(t, "configmap/one created\nconfigmap/two created\nconfigmap/one labeled\nconfigmap/two\nnothing\n",
		"configmap/two created\n"+takeBack, "tx", "--", "sh", "-ec", `
kubectl create configmap -n tx one
kubectl create configmap -n tx two
kubectl label configmap -n tx one a=b
kubectl delete configmap -n tx one >/dev/null
kubectl get configmap -n tx one two --ignore-not-found -o name
`+outside+"; echo nothing")
	if !w.exists(t, "tx", "two") {
		t.Error("what a command has written that ended well must be committed")
	}
	w.fails(t, 3, "sqube: sh: exit status 3; nothing was written\n", "tx", "--", "sh", "-c", "kubectl create configmap -n tx three; exit 3")
	w.fails(t, 1, "sqube: kubectl was ended; nothing was written: /api/v1/namespaces/tx/configmaps can't be in transaction NAME: it would wait for",
		"tx", "--", "kubectl", "get", "configmap", "-n", "tx", "--watch")
	w.fails(t, 1, "others have changed its objects since it was opened: nothing was written; do all of it again\n",
		"tx", "--", "sh", "-ec", "kubectl create configmap -n tx four; KUBECONFIG="+w.kubeconfig+" kubectl create configmap -n tx four")
	w.fails(t, 1, "it would wait for a Pod, and nothing of a transaction runs before it is committed\n", "tx", "--", "kubectl", "get", "--raw", "/api/v1/namespaces/tx/pods/web/log")
	_, stderr, code := w.run(t, "tx", "--", "sh", "-c", `curl -sk "$(kubectl config view -o jsonpath='{.clusters[0].cluster.server}')/api"; stat -c %a "$KUBECONFIG" "$(dirname "$KUBECONFIG")"; echo "$KUBECONFIG" >&2`)
	if code != 0 {
		t.Errorf("code %d: %s", code, stderr)
	}
	folder, _, _ := strings.Cut(stderr, "\n")
	if _, err := os.Stat(filepath.Dir(folder)); !os.IsNotExist(err) {
		t.Errorf("the folder of the kubeconfig %s is left: %v", folder, err)
	}
	for _, name := range []string{"three", "four"} {
		if name == "three" && w.exists(t, "tx", name) {
			t.Errorf("%s was written", name)
		}
	}
}

// helm installs, upgrades and removes a chart in transactions. What waits for controllers is refused.
func (w *whole) helm(t *testing.T) {
	makeNamespace(t, w.c, "helm")
	chart := t.TempDir()
	written(t, chart, "Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n")
	harness.Must(t, os.Mkdir(filepath.Join(chart, "templates"), 0o700))
	written(t, chart, "templates/a.yaml", labelled("web", "{{ .Values.a }}")+"---\napiVersion: v1\nkind: Secret\nmetadata: {name: web}\n")
	helm := sqube.Program(t, "helm")
	in := func(args ...string) []string { return append([]string{"tx", "--", helm, "-n", "helm"}, args...) }
	run := func(want string, args ...string) {
		t.Helper()
		if _, stderr, code := w.run(t, in(args...)...); code != 0 || !strings.HasSuffix(stderr, want+takeBack) {
			t.Fatalf("helm %s ends with code %d and prints\n%s\nwant\n%s", strings.Join(args, " "), code, stderr, want)
		}
	}
	run("secret/sh.helm.release.v1.web.v1 created\nsecret/web created\nconfigmap/web created\n", "install", "web", chart, "--set", "a=1")
	run("secret/sh.helm.release.v1.web.v2 created\nconfigmap/web configured\nsecret/sh.helm.release.v1.web.v1 configured\n", "upgrade", "web", chart, "--set", "a=2")
	w.fails(t, 1, "was ended; nothing was written: ", in("upgrade", "web", chart, "--set", "a=3", "--wait")...)
	written(t, chart, "templates/hook.yaml", "apiVersion: batch/v1\nkind: Job\nmetadata: {name: hook, annotations: {helm.sh/hook: pre-upgrade}}\n"+
		"spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}\n")
	w.fails(t, 1, "was ended; nothing was written: /apis/batch/v1/namespaces/helm/jobs can't be in ", in("upgrade", "web", chart, "--set", "a=4")...)
	found, err := w.c.CoreV1().ConfigMaps("helm").Get(t.Context(), "web", metav1.GetOptions{})
	harness.Must(t, err)
	secrets, err := w.c.CoreV1().Secrets("helm").List(t.Context(), metav1.ListOptions{})
	harness.Must(t, err)
	if found.Data["a"] != "2" || len(secrets.Items) != 3 {
		t.Errorf("after two upgrades that were refused, a is %q, and there are %d Secrets", found.Data["a"], len(secrets.Items))
	}
}
