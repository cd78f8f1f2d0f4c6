package serve

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestUndo breaks things in several ways and brings them back with sqube undo. Each subtest has its own users and namespace.
func TestUndo(t *testing.T) {
	t.Parallel()
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		s := serve(t, []string{"--datastore", engine.Datastore})
		t.Cleanup(func() {
			if log := s.Log(t); strings.Contains(log, "SHOULD NOT HAPPEN") { // of managedFields
				t.Errorf("the server logs %s", log)
			}
		})
		f := &undone{s.Kubeconfig, engine.Datastore}
		tests := map[string]func(*testing.T){"script": f.script, "spare": f.spare}
		if engine.Name == "sqlite" { // the others are about what is on top of the store
			maps.Copy(tests, map[string]func(*testing.T){
				"image": f.image, "often": f.often, "namespace": f.namespace, "definition": f.definition, "quota": f.quota, "rights": f.rights, "plugin": f.plugin, "webhook": f.webhook, "slow": f.slow, "managers": f.managers,
			})
		}
		for name, test := range tests {
			t.Run(name, test)
		}
	})
}

// undone is a cluster whose changes are taken back.
type undone struct{ kubeconfig, datastore string }

// as returns a kubeconfig of a user in the groups.
func (f *undone) as(t *testing.T, user string, groups ...string) string {
	t.Helper()
	args := []string{"kubeconfig", "--user", user, "--data-dir", filepath.Dir(f.kubeconfig)}
	for _, group := range groups {
		args = append(args, "--group", group)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig") // without colons, which separate files
	harness.Must(t, os.WriteFile(file, []byte(succeeds(t, args)), 0o600))
	return file
}

// administrator returns a kubeconfig and a client of a user who may do everything.
func (f *undone) administrator(t *testing.T, user string) (string, kubernetes.Interface) {
	t.Helper()
	kubeconfig := f.as(t, user, "system:masters")
	return kubeconfig, client(t, kubeconfig)
}

func makeNamespace(t *testing.T, c kubernetes.Interface, name string) {
	t.Helper()
	_, err := c.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	harness.Must(t, err)
}

// undo runs sqube undo and returns what it prints.
func undo(t *testing.T, kubeconfig string, args ...string) string {
	t.Helper()
	stdout, stderr, _ := sqube.Run(t, append([]string{"undo", "--kubeconfig", kubeconfig}, args...))
	return stdout + stderr
}

var numbers = regexp.MustCompile(`(revision|takes back|with [a-z-]+,) \d+`)

var name = regexp.MustCompile(`--transaction undo-[0-9a-z]+`)

// says compares what sqube undo prints, but for the revisions.
func says(t *testing.T, got, want string) {
	t.Helper()
	if masked := name.ReplaceAllString(numbers.ReplaceAllString(got, "$1 N"), "--transaction NAME"); masked != want {
		t.Errorf("sqube undo prints\n%s\nwant\n%s", masked, want)
	}
}

// has finds lines in what sqube undo prints.
func has(t *testing.T, got string, want ...string) {
	t.Helper()
	masked := numbers.ReplaceAllString(got, "$1 N")
	for _, line := range want {
		if !strings.Contains("\n"+masked, "\n"+line+"\n") {
			t.Errorf("sqube undo does not print %q but\n%.3000s", line, masked)
		}
	}
}

// inverse returns the arguments that take an undo back, as it prints them.
func inverse(t *testing.T, printed string) []string {
	t.Helper()
	_, command, found := strings.Cut(printed, "To take this back: sqube undo ")
	if !found {
		t.Fatalf("it does not say how to take it back:\n%s", printed)
	}
	command, _, _ = strings.Cut(command, "\n")
	return strings.Fields(command)
}

const planned = "This is a plan: nothing has been changed. Add --apply to apply it.\n"

func totals(created, updated, deleted, left int) string {
	return fmt.Sprintf("%d to create, %d to update, %d to delete, %d left as they are.", created, updated, deleted, left)
}

// image undoes the rollout of a wrong image to a Deployment. Other fields have changed since, then the same one, too.
func (f *undone) image(t *testing.T) {
	jane, janes := f.administrator(t, "jane")
	_, joes := f.administrator(t, "joe")
	makeNamespace(t, janes, "image")
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	web.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	web.Spec.Template.Labels = web.Spec.Selector.MatchLabels
	web.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", Image: "app:1"}, {Name: "proxy", Image: "proxy:1"}}
	_, err := joes.AppsV1().Deployments("image").Create(t.Context(), web, metav1.CreateOptions{})
	harness.Must(t, err)
	patch := func(c kubernetes.Interface, body string) {
		t.Helper()
		_, err := c.AppsV1().Deployments("image").Patch(t.Context(), "web", types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{FieldManager: "hand"})
		harness.Must(t, err)
	}
	expect := func(want string) {
		t.Helper()
		d, err := joes.AppsV1().Deployments("image").Get(t.Context(), "web", metav1.GetOptions{})
		harness.Must(t, err)
		c := d.Spec.Template.Spec.Containers
		if got := fmt.Sprint(c[0].Image, " ", c[1].Image, " ", *d.Spec.Replicas); got != want {
			t.Errorf("the Deployment has %s, want %s", got, want)
		}
	}
	patch(janes, `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"app:wrong"}]}}}}`)
	patch(joes, `{"spec":{"replicas":3,"template":{"spec":{"containers":[{"name":"proxy","image":"proxy:2"}]}}}}`)

	const changed = "update  deployments.apps image/web%s\n    takes back N by jane with hand\n    .spec.template.spec.containers[name=app].image: \"%s\" → \"app:1\"\n"
	const back = "To take this back: sqube undo --transaction NAME\n"
	says(t, undo(t, jane, "--user", "jane", "--resources", "deployments.apps"), fmt.Sprintf(changed, "", "app:wrong")+"\n"+totals(0, 1, 0, 0)+"\n"+planned)
	expect("app:wrong proxy:2 3")
	args := []string{"--user", "jane", "--resources", "deployments.apps", "--apply"}
	printed := undo(t, jane, args...)
	says(t, printed, fmt.Sprintf(changed, " (done)", "app:wrong")+"\n"+totals(0, 1, 0, 0)+"\n"+back)
	expect("app:1 proxy:2 3")
	says(t, undo(t, jane, args...), "leave   deployments.apps image/web: nothing to do: it is as it was\n\n"+totals(0, 0, 0, 1)+"\n")

	// An undo can be undone, and that too.
	printed = undo(t, jane, append(inverse(t, printed), "--apply")...)
	expect("app:wrong proxy:2 3")
	undo(t, jane, append(inverse(t, printed), "--apply")...)
	expect("app:1 proxy:2 3")

	patch(joes, `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"app:2"}]}}}}`)
	const conflict = "    conflict in .spec.template.spec.containers[name=app].image: revision N by joe"
	says(t, undo(t, jane, args...), "leave   deployments.apps image/web: others have changed the same fields since\n"+conflict+"\n\n"+totals(0, 0, 0, 1)+"\n")
	expect("app:2 proxy:2 3")
	has(t, undo(t, jane, append(args, "--force")...), conflict+" is overwritten")
	expect("app:1 proxy:2 3")

	_, first, _ := strings.Cut(undo(t, jane, "--user", "jane", "--resources", "deployments.apps", "--force", "-o", "json"), `"revision": `)
	first, _, _ = strings.Cut(first, ",")
	has(t, undo(t, jane, "deploy/web", "-n", "image", "--before", first, "--apply"), "    .spec.replicas: 3 → 1", `    .spec.template.spec.containers[name=proxy].image: "proxy:2" → "proxy:1"`)
	expect("app:1 proxy:1 1")
	has(t, undo(t, jane, "deploy/web", "-n", "image", "--to", "10h"), "delete  deployments.apps image/web", "    warning: it did not exist then")
}

// often takes back many changes of one object, between which another has changed it.
func (f *undone) often(t *testing.T) {
	jane, janes := f.administrator(t, "jane")
	_, joes := f.administrator(t, "joe")
	makeNamespace(t, joes, "often")
	_, err := joes.CoreV1().ConfigMaps("often").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Data: map[string]string{"a": "0", "b": "0"}}, metav1.CreateOptions{})
	harness.Must(t, err)
	patch := func(c kubernetes.Interface, data string) {
		t.Helper()
		_, err := c.CoreV1().ConfigMaps("often").Patch(t.Context(), "c", types.MergePatchType, []byte(`{"data":`+data+`}`), metav1.PatchOptions{FieldManager: "hand"})
		harness.Must(t, err)
	}
	expect := func(want map[string]string) {
		t.Helper()
		c, err := joes.CoreV1().ConfigMaps("often").Get(t.Context(), "c", metav1.GetOptions{})
		harness.Must(t, err)
		if !maps.Equal(c.Data, want) {
			t.Errorf("the ConfigMap has %v, want %v", c.Data, want)
		}
	}
	for _, data := range []string{`{"a":"1"}`, `{"a":"2","d":"1"}`, `{"d":null}`} {
		patch(janes, data)
	}
	patch(joes, `{"b":"1"}`)
	for _, data := range []string{`{"a":"3"}`, `{"c":"1"}`} {
		patch(janes, data)
	}
	args := []string{"--user", "jane", "-n", "often", "--apply"}
	says(t, undo(t, jane, args...), `update  configmaps often/c (done)
    takes back N by jane with hand, N by jane with hand, N by jane with hand
    .data.a: "3" → "0"
    .data.c: "1" → (none)

`+totals(0, 1, 0, 0)+"\nTo take this back: sqube undo --transaction NAME\n")
	expect(map[string]string{"a": "0", "b": "1"})
	patch(joes, `{"a":"1"}`) // as jane did in between
	has(t, undo(t, jane, args...), "leave   configmaps often/c: others have changed the same fields since", "    conflict in .data.a: revision N by joe")
	expect(map[string]string{"a": "1", "b": "1"})
}

// script takes back what a script has done to many objects. One of them has been changed by another since.
func (f *undone) script(t *testing.T) {
	const objects = 200
	script, scripts := f.administrator(t, "script")
	_, others := f.administrator(t, "other")
	makeNamespace(t, others, "script")
	each(t, objects, func(i int) error {
		_, err := others.CoreV1().ConfigMaps("script").Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%d", i), Labels: map[string]string{"team": fmt.Sprint("c", i), "tier": "web"}},
		}, metav1.CreateOptions{})
		return err
	})
	each(t, objects, func(i int) error {
		_, err := scripts.CoreV1().ConfigMaps("script").Patch(t.Context(), fmt.Sprintf("c%d", i), types.MergePatchType, []byte(`{"metadata":{"labels":{"team":null}}}`), metav1.PatchOptions{})
		return err
	})
	_, err := others.CoreV1().ConfigMaps("script").Patch(t.Context(), "c7", types.MergePatchType, []byte(`{"metadata":{"labels":{"team":"mine"}},"data":{"a":"b"}}`), metav1.PatchOptions{})
	harness.Must(t, err)

	ended := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() { // what others write meanwhile remains
		for i := 0; ; i++ {
			select {
			case <-ended:
				return
			default:
			}
			if _, err := others.CoreV1().ConfigMaps("script").Patch(t.Context(), fmt.Sprintf("c%d", i%objects), types.MergePatchType, []byte(`{"data":{"written":"meanwhile"}}`), metav1.PatchOptions{}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	printed := undo(t, script, "--user", "script", "--since", "1h", "-n", "script", "--apply")
	close(ended)
	writing.Wait()
	has(t, printed, `    .metadata.labels.team: (none) → "c42"`, "leave   configmaps script/c7: others have changed the same fields since",
		"    conflict in .metadata.labels.team: revision N by other", totals(0, objects-1, 0, 1))
	all, err := others.CoreV1().ConfigMaps("script").List(t.Context(), metav1.ListOptions{LabelSelector: "tier=web"})
	harness.Must(t, err)
	for _, c := range all.Items {
		if want := map[bool]string{true: "mine", false: c.Name}[c.Name == "c7"]; c.Labels["team"] != want {
			t.Errorf("%s has the labels %v", c.Name, c.Labels)
		}
	}
	if len(all.Items) != objects || all.Items[0].Data["written"] == "" {
		t.Errorf("there are %d objects, the first one with %v", len(all.Items), all.Items[0].Data)
	}
	back := inverse(t, printed) // which is of one transaction
	if out := succeeds(t, append([]string{"changes", "-n", "script", "--kubeconfig", script, "-o", "json"}, back...)); strings.Count(out, "\n") != objects-1 {
		t.Errorf("the transaction of the undo has the changes\n%s", out)
	}
	kubectlPrints(t, script, "get", "--raw", "/apis/history.sqube.io/v1alpha1/transactions/"+back[1])
	has(t, undo(t, script, append(back, "--apply")...), `    .metadata.labels.team: "c42" → (none)`, totals(0, objects-1, 0, 0))
}

// each calls do with 0 to n-1, some at once.
func each(t *testing.T, n int, do func(i int) error) {
	t.Helper()
	var all sync.WaitGroup
	for first := range 8 {
		all.Go(func() {
			for i := first; i < n; i += 8 {
				if err := do(i); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// quota interrupts an undo, which goes on when there is room.
func (f *undone) quota(t *testing.T) {
	quinn, c := f.administrator(t, "quinn")
	makeNamespace(t, c, "quota")
	made := ""
	for i := range 6 {
		s, err := c.CoreV1().Secrets("quota").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("s", i)}}, metav1.CreateOptions{})
		harness.Must(t, err)
		made = s.ResourceVersion
	}
	for i := range 6 {
		harness.Must(t, c.CoreV1().Secrets("quota").Delete(t.Context(), fmt.Sprint("s", i), metav1.DeleteOptions{}))
	}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "few"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/secrets": resource.MustParse("3")}}}
	_, err := c.CoreV1().ResourceQuotas("quota").Create(t.Context(), quota, metav1.CreateOptions{})
	harness.Must(t, err)
	harness.Retry(t, "the quota is counted", func() error {
		q, err := c.CoreV1().ResourceQuotas("quota").Get(t.Context(), "few", metav1.GetOptions{})
		if err == nil && len(q.Status.Hard) == 0 {
			err = fmt.Errorf("its status is %v", q.Status)
		}
		return err
	})
	args := []string{"--user", "quinn", "-n", "quota", "--resources", "secrets", "--after-revision", made, "--apply", "--partial"}
	printed := undo(t, quinn, args...)
	if strings.Count(printed, "(done)") != 3 || strings.Count(printed, "(failed)") != 3 || !strings.Contains(printed, "exceeded quota: few") {
		t.Errorf("with a quota of 3, sqube undo prints\n%s", printed)
	}
	has(t, printed, "sqube: not everything has been applied: run the same command again to go on")
	harness.Must(t, c.CoreV1().ResourceQuotas("quota").Delete(t.Context(), "few", metav1.DeleteOptions{}))
	harness.Retry(t, "the rest comes back", func() error {
		_, stderr, code := sqube.Run(t, append([]string{"undo", "--kubeconfig", quinn}, args...))
		if code != 0 {
			return fmt.Errorf("%s", stderr)
		}
		return nil
	})
	has(t, undo(t, quinn, args...), totals(0, 0, 0, 6))
}

// rights undoes as a user who may do nothing at first, and then more and more.
func (f *undone) rights(t *testing.T) {
	ctx := t.Context()
	_, roots := f.administrator(t, "root")
	viewer := f.as(t, "viewer")
	makeNamespace(t, roots, "rights")
	for _, name := range []string{"seen", "kept"} {
		_, err := roots.CoreV1().ConfigMaps("rights").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		harness.Must(t, err)
	}
	_, err := roots.CoreV1().Secrets("rights").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "hidden"}, StringData: map[string]string{"code": "1234"}}, metav1.CreateOptions{})
	harness.Must(t, err)
	harness.Must(t, roots.CoreV1().ConfigMaps("rights").Delete(ctx, "seen", metav1.DeleteOptions{}))
	harness.Must(t, roots.CoreV1().Secrets("rights").Delete(ctx, "hidden", metav1.DeleteOptions{}))
	allow := func(name string, rules ...rbacv1.PolicyRule) {
		t.Helper()
		_, err := roots.RbacV1().Roles("rights").Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{})
		harness.Must(t, err)
		_, err = roots.RbacV1().RoleBindings("rights").Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef: rbacv1.RoleRef{Kind: "Role", Name: name}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "viewer"}}}, metav1.CreateOptions{})
		harness.Must(t, err)
	}
	untilSays := func(want string, args ...string) {
		t.Helper()
		harness.Retry(t, want, func() error {
			if printed := undo(t, viewer, args...); !strings.Contains(printed, want) {
				return fmt.Errorf("sqube undo prints %s", printed)
			}
			return nil
		})
	}
	const unknown = "sqube: history has no %s: it never was, was deleted longer ago than history reaches, or you may not get it\n"
	says(t, undo(t, viewer, "cm/seen", "-n", "rights"), `sqube: undos.history.sqube.io is forbidden: User "viewer" cannot create resource "undos" in API group "history.sqube.io" in the namespace "rights"`+"\n")

	// A role within the namespace suffices, as those of edit and admin, which include it.
	_, err = roots.RbacV1().RoleBindings("rights").Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "undo"},
		RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "sqube:undo"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "viewer"}}}, metav1.CreateOptions{})
	harness.Must(t, err)
	untilSays(fmt.Sprintf(unknown, "configmaps rights/seen"), "cm/seen", "-n", "rights")
	says(t, undo(t, viewer, "--user", "root", "-n", "rights"), "There is nothing to undo, as far as you may know.\n")

	allow("get", rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"configmaps"}})
	untilSays("create  configmaps rights/seen\n", "cm/seen", "-n", "rights")
	printed := undo(t, viewer, "cm/seen", "-n", "rights", "--apply")
	has(t, printed, `create  configmaps rights/seen (failed): configmaps is forbidden: User "viewer" cannot create resource "configmaps" in API group "" in the namespace "rights"`)
	says(t, undo(t, viewer, "secret/hidden", "-n", "rights"), fmt.Sprintf(unknown, "secrets rights/hidden"))
	says(t, undo(t, viewer, "--user", "root", "-n", "rights"), "There is nothing to undo, as far as you may know.\n") // which does not name objects
	allow("list", rbacv1.PolicyRule{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"configmaps"}})
	untilSays("kept", "--user", "root", "-n", "rights")
	if printed := undo(t, viewer, "--user", "root", "-n", "rights", "-o", "json"); strings.Contains(printed, "hidden") || !strings.Contains(printed, "kept") {
		t.Errorf("of all that root did, viewer sees %s", printed)
	}

	allow("create", rbacv1.PolicyRule{Verbs: []string{"create"}, APIGroups: []string{""}, Resources: []string{"configmaps"}})
	untilSays("create  configmaps rights/seen (done)\n", "cm/seen", "-n", "rights", "--apply")
	if _, err := roots.CoreV1().ConfigMaps("rights").Get(ctx, "seen", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	const forbidden = `sqube: undos.history.sqube.io is forbidden: User "viewer" cannot create resource "undos" in API group "history.sqube.io" at the cluster scope` + "\n"
	says(t, undo(t, viewer, "--user", "root"), forbidden)
	body := `{"apiVersion":"history.sqube.io/v1alpha1","kind":"Undo","spec":{"changes":{"user":"root","namespace":"default"}}}`
	err = roots.CoreV1().RESTClient().Post().AbsPath("/apis/history.sqube.io/v1alpha1/namespaces/rights/undos").SetHeader("Impersonate-User", "viewer").Body([]byte(body)).Do(ctx).Error()
	if !apierrors.IsBadRequest(err) {
		t.Errorf("in one namespace, an undo in another is %v", err)
	}
}

// webhook undoes what a webhook that must be asked and can't be denies for one of ten objects. When it is gone, the undo goes on.
func (f *undone) webhook(t *testing.T) {
	ctx := t.Context()
	wanda, c := f.administrator(t, "wanda")
	makeNamespace(t, c, "webhook")
	made := ""
	for i := range 10 {
		s, err := c.CoreV1().ConfigMaps("webhook").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("c", i), Labels: map[string]string{"n": fmt.Sprint(i)}}}, metav1.CreateOptions{})
		harness.Must(t, err)
		made = s.ResourceVersion
	}
	for i := range 10 {
		harness.Must(t, c.CoreV1().ConfigMaps("webhook").Delete(ctx, fmt.Sprint("c", i), metav1.DeleteOptions{}))
	}
	url, none, fail, scope := "https://127.0.0.1:1/", admissionv1.SideEffectClassNone, admissionv1.Fail, admissionv1.NamespacedScope
	_, err := c.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "gone"},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "gone.example.com", ClientConfig: admissionv1.WebhookClientConfig{URL: &url}, SideEffects: &none, FailurePolicy: &fail,
			AdmissionReviewVersions: []string{"v1"}, ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"n": "4"}},
			Rules: []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}, Scope: &scope}}},
		}},
	}, metav1.CreateOptions{})
	harness.Must(t, err)
	harness.Retry(t, "the webhook is asked", func() error {
		_, err := c.CoreV1().ConfigMaps("webhook").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "probe", Labels: map[string]string{"n": "4"}}}, metav1.CreateOptions{DryRun: []string{"All"}})
		if err == nil {
			return errors.New("it is not")
		}
		return nil
	})
	args := []string{"--user", "wanda", "-n", "webhook", "--after-revision", made, "--apply"}
	printed := undo(t, wanda, args...)
	has(t, printed, "create  configmaps webhook/c0 (not tried)", "note: nothing has been changed, since not everything could be", totals(10, 0, 0, 0))
	if got, err := c.CoreV1().ConfigMaps("webhook").List(ctx, metav1.ListOptions{LabelSelector: "n"}); err != nil || len(got.Items) != 0 {
		t.Errorf("an undo of which a step has failed has brought back %v, %v", got.Items, err)
	}
	args = append(args, "--partial")
	printed = undo(t, wanda, args...)
	if strings.Count(printed, "(done)") != 9 || !strings.Contains(printed, `create  configmaps webhook/c4 (failed): Internal error occurred: failed calling webhook "gone.example.com"`) {
		t.Errorf("with a webhook that fails, sqube undo prints\n%s", printed)
	}
	has(t, printed, "sqube: not everything has been applied: run the same command again to go on")
	back := inverse(t, printed)[:4] // by whom and with which id
	harness.Must(t, c.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(ctx, "gone", metav1.DeleteOptions{}))
	harness.Retry(t, "the rest comes back", func() error {
		_, stderr, code := sqube.Run(t, append([]string{"undo", "--kubeconfig", wanda}, args...))
		if code != 0 {
			return errors.New(stderr)
		}
		return nil
	})
	has(t, undo(t, wanda, append(back, "--after-revision", made)...), totals(0, 0, 9, 0)) // but not what came back later
}

// plugin undoes through kubectl: with kubectl-sqube, which is the same binary, and with an object of kind Undo.
func (f *undone) plugin(t *testing.T) {
	pat, c := f.administrator(t, "pat")
	makeNamespace(t, c, "plugin")
	_, err := c.CoreV1().Secrets("plugin").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "door"}, StringData: map[string]string{"code": "1234"}}, metav1.CreateOptions{})
	harness.Must(t, err)
	_, err = c.CoreV1().Secrets("plugin").Patch(t.Context(), "door", types.MergePatchType, []byte(`{"stringData":{"code":"0"}}`), metav1.PatchOptions{FieldManager: "hand"})
	harness.Must(t, err)
	printed := kubectlPrints(t, pat, "sqube", "undo", "--user", "pat", "--manager", "hand", "--apply")
	has(t, printed, "update  secrets plugin/door (done)", "    .data.code: (1 bytes) → (4 bytes)")
	if !strings.Contains(printed, "\nTo take this back: kubectl sqube undo --transaction ") {
		t.Errorf("kubectl sqube prints %s", printed)
	}
	door, err := c.CoreV1().Secrets("plugin").Get(t.Context(), "door", metav1.GetOptions{})
	harness.Must(t, err)
	if string(door.Data["code"]) != "1234" {
		t.Errorf("the Secret has %s", door.Data)
	}

	harness.Must(t, c.CoreV1().Secrets("plugin").Delete(t.Context(), "door", metav1.DeleteOptions{}))
	file := filepath.Join(t.TempDir(), "undo.yaml")
	harness.Must(t, os.WriteFile(file, []byte(`{apiVersion: history.sqube.io/v1alpha1, kind: Undo, spec: {apply: true, object: {apiVersion: v1, kind: Secret, namespace: plugin, name: door}}}`), 0o600))
	const status = "jsonpath={.status.plan[*].action} {.status.plan[*].object.name} {.status.plan[*].result} {.status.complete}"
	if got := kubectlPrints(t, pat, "create", "--dry-run=server", "-f", file, "-o", status); got != "create door  " {
		t.Errorf("a dry run is %q", got)
	}
	if _, err := c.CoreV1().Secrets("plugin").Get(t.Context(), "door", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after the dry run: %v", err)
	}
	if got := kubectlPrints(t, pat, "create", "-f", file, "-o", status); got != "create door done true" {
		t.Errorf("the Undo is %q", got)
	}
}
