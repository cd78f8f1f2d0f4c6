package serve

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestChangeCommands asks a server what changed, with sqube changes, blame and diff. TestChanges asks through the API.
func TestChangeCommands(t *testing.T) {
	t.Parallel()
	s := serve(t, packing)
	f := &asked{undone: undone{kubeconfig: s.Kubeconfig}}
	f.prepare(t)
	_, root := f.administrator(t, "root")
	packed(t, s, root)
	for name, test := range map[string]func(*testing.T){"changes": f.changes, "watch": f.watch, "blame": f.blame, "diff": f.diff, "rights": f.rights, "plugin": f.plugin} {
		t.Run(name, test)
	}
}

// asked is a cluster in which jane and joe have changed what is in the namespace shop.
type asked struct {
	undone
	created, painted, moved, gone string // revisions
}

func (f *asked) prepare(t *testing.T) {
	ctx := t.Context()
	_, jane := f.administrator(t, "jane")
	_, joe := f.administrator(t, "joe")
	makeNamespace(t, jane, "shop")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{"a.b/c": "1"}}}
	pod.Spec.Containers = []corev1.Container{{Name: "app", Image: "app:1"}, {Name: "proxy", Image: "proxy:1"}}
	made, err := jane.CoreV1().Pods("shop").Create(ctx, pod, metav1.CreateOptions{FieldManager: "maker"})
	harness.Must(t, err)
	f.created = made.ResourceVersion
	made, err = joe.CoreV1().Pods("shop").Patch(ctx, "web", types.StrategicMergePatchType,
		[]byte(`{"metadata":{"annotations":{"a.b/c":"2"}},"spec":{"containers":[{"name":"proxy","image":"proxy:2"}]}}`), metav1.PatchOptions{FieldManager: "painter"})
	harness.Must(t, err)
	f.painted = made.ResourceVersion
	labels := map[string]string{}
	for i := range 120 { // more than a change shows
		labels[fmt.Sprint("l", i)] = "x"
	}
	made.Labels = labels
	made, err = joe.CoreV1().Pods("shop").Update(ctx, made, metav1.UpdateOptions{FieldManager: "labeller"})
	harness.Must(t, err)
	for i := range 120 {
		labels[fmt.Sprint("l", i)] = "y"
	}
	made.Labels = labels
	made, err = joe.CoreV1().Pods("shop").Update(ctx, made, metav1.UpdateOptions{FieldManager: "mover"})
	harness.Must(t, err)
	f.moved = made.ResourceVersion
	door := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "door"}, StringData: map[string]string{"code": "1234", "knock": "2"}}
	_, err = jane.CoreV1().Secrets("shop").Create(ctx, door, metav1.CreateOptions{})
	harness.Must(t, err)
	_, err = joe.CoreV1().Secrets("shop").Patch(ctx, "door", types.MergePatchType, []byte(`{"stringData":{"code":"5"}}`), metav1.PatchOptions{})
	harness.Must(t, err)
	lost, err := jane.CoreV1().ConfigMaps("shop").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "lost"}, Data: map[string]string{"k": "v"}}, metav1.CreateOptions{})
	harness.Must(t, err)
	f.gone = lost.ResourceVersion
	harness.Must(t, joe.CoreV1().ConfigMaps("shop").Delete(ctx, "lost", metav1.DeleteOptions{}))
	_, err = jane.RbacV1().RoleBindings("shop").Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "vic"},
		RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "view"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "vic"}}}, metav1.CreateOptions{})
	harness.Must(t, err)
}

// sqube runs a command as a user, and returns all that it prints and its exit code.
func (f *asked) sqube(t *testing.T, command string) (string, int) {
	t.Helper()
	stdout, stderr, code := sqube.Run(t, append(strings.Fields(command), "--kubeconfig", f.kubeconfig))
	return stdout + stderr, code
}

func (f *asked) prints(t *testing.T, command string, wantCode int, want string) {
	t.Helper()
	if printed, code := f.sqube(t, command); code != wantCode || !regexp.MustCompile(want).MatchString(printed) {
		t.Errorf("sqube %s: exit code %d, want %d with %s\n%s", command, code, wantCode, want, printed)
	}
}

func (f *asked) changes(t *testing.T) {
	f.prints(t, "changes -n shop --user joe --kind Pod --since 1h", 0, `^REVISION +AGE +OPERATION +OBJECT +USER +MANAGER +CHANGED
\d+ +\S+ +update +pod/web +joe +painter +\.metadata\.annotations\["a\.b/c"\]: 1 → 2, .*
\d+ +\S+ +update +pod/web +joe +labeller .*
\d+ +\S+ +update +pod/web +joe +mover .*\n$`)
	f.prints(t, "changes pod web -n shop --newest-first --field .spec", 0, `^REVISION.*\n`+f.painted+` .*\n$`)
	f.prints(t, "changes ns/shop", 0, `^NAMESPACE +REVISION .*\n +\d+ +\S+ +create +namespace/shop +jane .*\n$`)
	f.prints(t, "changes -A --operation delete --kind configmap -o wide", 0, `^NAMESPACE .* VALUES\nshop .* delete +configmap/lost +joe .*\n$`)
	f.prints(t, "changes -n shop --manager painter -o json", 0, `^\{.*"path":"\.spec\.containers\[name=proxy\]\.image".*\}\n$`)
	f.prints(t, "changes -n bank", 0, `^No changes found, as far as you may know\.\n$`)
	f.prints(t, "changes --since yesterday", 1, `--since must be a duration`)
	printed, _ := f.sqube(t, "changes -A")
	all, _ := f.sqube(t, "changes -A -o json")
	leases := regexp.MustCompile(`(?im)^.*lease.*\n`) // of whose changes history may have removed some in between
	lines, objects := strings.Count(leases.ReplaceAllString(printed, ""), "\n"), strings.Count(leases.ReplaceAllString(all, ""), "\n")
	if lines < 200 || strings.Count(printed, "REVISION") != 1 || objects < lines-1 {
		t.Errorf("of the cluster, it prints %d lines, and %d as JSON", lines, objects)
	}
}

// watch follows a change that happens later.
func (f *asked) watch(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := exec.CommandContext(ctx, sqube.Binary(t), "changes", "-n", "shop", "--manager", "later", "-w", "--kubeconfig", f.kubeconfig)
	out, err := cmd.StdoutPipe()
	harness.Must(t, err)
	harness.Must(t, cmd.Start())
	_, root := f.administrator(t, "root")
	_, err = root.CoreV1().ConfigMaps("shop").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "later"}}, metav1.CreateOptions{FieldManager: "later"})
	harness.Must(t, err)
	var seen bytes.Buffer
	for !strings.Contains(seen.String(), "configmap/later") {
		part := make([]byte, 1000)
		n, err := out.Read(part)
		if seen.Write(part[:n]); err != nil {
			t.Fatalf("it prints %s: %v", seen.String(), err)
		}
	}
	cancel()
	_ = cmd.Wait()
	if !regexp.MustCompile(`^REVISION .*\n\d+ .* create +configmap/later `).MatchString(seen.String()) {
		t.Errorf("it prints %s", seen.String())
	}
}

func (f *asked) blame(t *testing.T) {
	by := func(revision, user, manager, line string) string {
		return fmt.Sprintf(`(?m)^%s +20\S+Z +%s +%s +%s$`, revision, user, manager, line)
	}
	for _, want := range []string{
		by(f.created, "jane", "maker", `- image: app:1`), by(f.painted, "joe", "painter", `- image: proxy:2`), by(f.created, "jane", "maker", `  name: proxy`),
		by(f.painted, "joe", "painter", `a\.b/c: "2"`), by(f.moved, "joe", "mover", `l0: "y"`), by(f.moved, "joe", "mover", `l119: "y"`),
	} {
		f.prints(t, "blame pod/web -n shop", 0, want)
	}
	f.prints(t, "blame pod/web -n shop --at "+f.created, 0, by(f.created, "jane", "maker", `a\.b/c: "1"`))
	f.prints(t, "blame cm lost -n shop", 0, `(?s)^`+f.gone+` .* k: v\n.*configmaps lost was deleted at \S+Z by joe \(revision \d+\)\. This is its last version\.\n$`)
	f.prints(t, "blame cm none -n shop", 1, `^sqube: there is no configmaps none, as far as you may know\n$`)
	f.prints(t, "blame pod/web -n shop --at 10h", 1, `^sqube: --at 10h: history does not reach back so far\n$`)
}

func (f *asked) diff(t *testing.T) {
	f.prints(t, "diff pod/web -n shop --from "+f.created+" --to "+f.painted, 1, fmt.Sprintf(`^diff -u -N %[1]s/v1\.Pod\.shop\.web %[2]s/v1\.Pod\.shop\.web
--- %[1]s/v1\.Pod\.shop\.web
\+\+\+ %[2]s/v1\.Pod\.shop\.web
@@ -2,7 \+2,7 @@
 kind: Pod
 metadata:
   annotations:
-    a\.b/c: "1"
\+    a\.b/c: "2"
(?s:.*)
-  - image: proxy:1
\+  - image: proxy:2
`, f.created, f.painted))
	f.prints(t, "diff pod/web -n shop --from "+f.painted+" --to "+f.painted, 0, `^$`)
	printed, code := f.sqube(t, "diff -n shop --from "+f.painted)
	for _, part := range []string{"+    l7: \"y\"\n", "@@ -0,0 +1,", "+  code: (1 bytes)\n", "now/rbac.authorization.k8s.io.v1.RoleBinding.shop.vic\n"} {
		if code != 1 || !strings.Contains(printed, part) {
			t.Errorf("the diff has exit code %d and not %q:\n%.3000s", code, part, printed)
		}
	}
	if strings.Contains(printed, "lost") || strings.Contains(printed, "MTIzNA") {
		t.Errorf("the diff has what it should not:\n%s", printed)
	}
	f.prints(t, "diff -n shop --resources configmaps --to "+f.gone+" --from "+f.painted, 1, `(?s)diff -u -N \S+\.lost \S+\.lost\n[^@]*@@ -0,0 \+1,\d+ @@\n`)
	f.prints(t, "diff -n shop --resources configmaps --from "+f.gone, 1, `(?m)^-  k: v$`)
	f.prints(t, "diff -A --resources configmaps --from 0s", 0, `^$`)
	f.prints(t, "diff -n shop", 2, `^sqube: --from must be given\n$`)
	f.prints(t, "diff cm/none -n shop --from "+f.painted, 2, `^sqube: configmaps shop/none: there was none at either moment, as far as you may know\n$`)
	f.prints(t, "diff -n shop --frm 1", 2, `^sqube: unknown flag: --frm \(see sqube diff --help\)\n$`)
}

// rights asks as vic, who may view the namespace shop and thus no Secrets.
func (f *asked) rights(t *testing.T) {
	harness.Retry(t, "vic may view", func() error {
		if printed, code := f.sqube(t, "changes -n shop --as vic"); code != 0 || !strings.Contains(printed, "pod/web") {
			return fmt.Errorf("%s", printed)
		}
		return nil
	})
	for _, command := range []string{"changes -n shop", "diff -n shop --from " + f.created, "blame secret/door -n shop"} {
		if printed, _ := f.sqube(t, command+" --as vic"); strings.Contains(printed, "secret/") || strings.Contains(printed, "code") {
			t.Errorf("as vic, sqube %s prints %s", command, printed)
		}
	}
	f.prints(t, "changes -A --as vic", 1, `^sqube: changes\.history\.sqube\.io is forbidden: User "vic" cannot list resource "changes"`)
	f.prints(t, "changes -A --as vic --as-group system:masters", 0, "secret/door")
}

// plugin asks through kubectl, whose plugin passes on the exit code.
func (f *asked) plugin(t *testing.T) {
	jane, _ := f.administrator(t, "jane")
	for command, want := range map[string]struct{ text, failure string }{
		"changes pod/web --field .spec.containers": {"→ proxy:2", "<nil>"},
		"blame pod/web": {"joe painter", "<nil>"},
		"diff pod/web --from " + f.created + " --to " + f.painted: {"+  - image: proxy:2", "exit status 1"},
	} {
		printed, err := kubectl(t, jane, "", strings.Fields("sqube "+command+" -n shop")...)
		if !strings.Contains(strings.Join(strings.Fields(printed), " "), strings.Join(strings.Fields(want.text), " ")) || fmt.Sprint(err) != want.failure {
			t.Errorf("kubectl sqube %s: %v\n%s", command, err, printed)
		}
	}
}
