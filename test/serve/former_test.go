package serve

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

func (f *history) as(user string) *kubernetes.Clientset {
	config := rest.CopyConfig(f.config)
	config.Impersonate.UserName = user
	return kubernetes.NewForConfigOrDie(config)
}

// mayIn binds a ClusterRole to a user in a namespace, "" for all.
func (f *history) mayIn(t *testing.T, user, role, namespace string) {
	t.Helper()
	ref, subjects := rbacv1.RoleRef{Kind: "ClusterRole", Name: role}, []rbacv1.Subject{{Kind: "User", Name: user}}
	var err error
	if meta := (metav1.ObjectMeta{Name: user + "-" + role}); namespace == "" {
		_, err = f.admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}, metav1.CreateOptions{})
	} else {
		_, err = f.admin.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}, metav1.CreateOptions{})
	}
	harness.Must(t, err)
}

// role makes a ClusterRole, with the right to read changes.
func (f *history) role(t *testing.T, name string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{"history.sqube.io"}, Resources: []string{"changes"}, Verbs: []string{"get", "list", "watch"}})
	_, err := f.admin.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{})
	harness.Must(t, err)
}

// awaitChanges waits until a user may list changes.
func (f *history) awaitChanges(t *testing.T, user, namespace string) {
	t.Helper()
	harness.Retry(t, user+" may list changes", func() error {
		_, err := f.changes(user, namespace).List(t.Context(), metav1.ListOptions{Limit: 1})
		return err
	})
}

func (f *history) makeSecret(t *testing.T, namespace, name, code string) *corev1.Secret {
	t.Helper()
	made, err := f.admin.CoreV1().Secrets(namespace).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"code": code},
	}, metav1.CreateOptions{})
	harness.Must(t, err)
	return made
}

func (f *history) tenant(t *testing.T) *corev1.Namespace {
	t.Helper()
	made, err := f.admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenant"}}, metav1.CreateOptions{})
	harness.Must(t, err)
	return made
}

// former gives a namespace that is deleted, and made again, to somebody else, who must not learn what was in it before: not by any list, get,
// watch, continue token, deletion or undo.
func (f *history) former(t *testing.T) {
	ctx := t.Context()
	f.tenant(t)
	old := f.makeSecret(t, "tenant", "door", "lastYears")
	f.makeSecret(t, "tenant", "safe", "lastYears")
	page, err := f.admin.CoreV1().Secrets("tenant").List(ctx, metav1.ListOptions{Limit: 1})
	harness.Must(t, err)
	harness.Must(t, f.admin.CoreV1().Namespaces().Delete(ctx, "tenant", metav1.DeleteOptions{}))
	gone(t, f.admin, "tenant")
	made := f.tenant(t)
	now := f.makeSecret(t, "tenant", "door", "thisYears")
	_, err = f.admin.CoreV1().Namespaces().Patch(ctx, "tenant", types.MergePatchType, []byte(`{"metadata":{"labels":{"color":"red"}}}`), metav1.PatchOptions{})
	harness.Must(t, err)
	f.mayIn(t, "eve", "admin", "tenant")
	f.mayIn(t, "max", "cluster-admin", "tenant") // everything, but in the namespace alone
	f.mayIn(t, "ann", "admin", "tenant")
	f.role(t, "before-tenant", rbacv1.PolicyRule{APIGroups: []string{"history.sqube.io"}, Resources: []string{"changes/former"}, ResourceNames: []string{"tenant"}, Verbs: []string{"get"}})
	f.mayIn(t, "ann", "before-tenant", "")
	for _, user := range []string{"eve", "max", "ann"} {
		f.awaitChanges(t, user, "tenant")
	}

	all, _ := f.list(t, "", "tenant", metav1.ListOptions{FieldSelector: "kind=Secret"})
	since := slices.IndexFunc(all, func(revision string) bool { return byRevision(revision, made.ResourceVersion) >= 0 })
	if since < 4 || len(all) < 5 { // two creations and two deletions
		t.Fatalf("of the changes %q, those since %s begin with number %d", all, made.ResourceVersion, since)
	}
	for user, want := range map[string][]string{"eve": all[since:], "max": all[since:], "ann": all, "": all} {
		seen, _ := f.list(t, user, "tenant", metav1.ListOptions{FieldSelector: "kind=Secret", Limit: 1})
		if !slices.Equal(seen, want) {
			t.Errorf("%q sees %q, want %q", user, seen, want)
		}
		_, err := f.changes(user, "tenant").Get(ctx, old.ResourceVersion, metav1.GetOptions{})
		if may := len(want) == len(all); may != (err == nil) || !may && !apierrors.IsNotFound(err) {
			t.Errorf("%q gets a change of the old Secret: %v", user, err)
		}
		f.exactly(t, user, old, len(want) == len(all))
		f.exactly(t, user, now, true)
		f.formerLists(t, user, old.ResourceVersion, page.Continue, len(want) == len(all))
	}
	for _, command := range []string{"secret/safe -n tenant", "--since 1h -n tenant --resources secrets", "secret/door -n tenant --to " + old.ResourceVersion} {
		if printed := undo(t, f.kubeconfig, append(strings.Fields(command), "--as", "eve")...); strings.Contains(printed, "create ") || strings.Contains(printed, "update ") {
			t.Errorf("eve's undo %s prints\n%s", command, printed)
		}
	}
	purge := func(user string) error {
		return f.changes(user, "tenant").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "resource=secrets,name=safe"})
	}
	if err := purge("max"); !apierrors.IsForbidden(err) {
		t.Errorf("max purges what he may not see: %v", err)
	}
	if printed := undo(t, f.kubeconfig, "secret/safe", "-n", "tenant"); !strings.Contains(printed, "create  secrets tenant/safe\n") {
		t.Errorf("the administrator's undo prints\n%s", printed)
	}
}

// exactly gets a Secret as it was.
func (f *history) exactly(t *testing.T, user string, secret *corev1.Secret, may bool) {
	t.Helper()
	read := f.as(user).CoreV1().RESTClient()
	err := read.Get().Namespace(secret.Namespace).Resource("secrets").Name(secret.Name).
		Param("resourceVersion", secret.ResourceVersion).Param("resourceVersionMatch", "Exact").Do(t.Context()).Error()
	if may != (err == nil) || !may && !(apierrors.IsForbidden(err) && strings.Contains(err.Error(), "changes/former")) {
		t.Errorf("%q gets %s at %s: %v", user, secret.Name, secret.ResourceVersion, err)
	}
	list, err := f.as(user).CoreV1().Secrets(secret.Namespace).List(t.Context(), metav1.ListOptions{
		FieldSelector: "metadata.name=" + secret.Name, ResourceVersion: secret.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact,
	})
	if may != (err == nil && len(list.Items) == 1) || !may && !apierrors.IsForbidden(err) {
		t.Errorf("%q lists %s at %s: %v, %v", user, secret.Name, secret.ResourceVersion, list.Items, err)
	}
}

// formerLists lists, deletes and watches what was before, and continues a list that began then.
func (f *history) formerLists(t *testing.T, user, revision, token string, may bool) {
	t.Helper()
	ctx, secrets := t.Context(), f.as(user).CoreV1().Secrets("tenant")
	exact := metav1.ListOptions{ResourceVersion: revision, ResourceVersionMatch: metav1.ResourceVersionMatchExact}
	if _, err := secrets.List(ctx, exact); may != (err == nil) || !may && !apierrors.IsForbidden(err) {
		t.Errorf("%q lists at %s: %v", user, revision, err)
	}
	if _, err := secrets.List(ctx, metav1.ListOptions{ResourceVersion: revision, Limit: 1}); may != (err == nil) || !may && !apierrors.IsForbidden(err) {
		t.Errorf("%q lists a page at %s: %v", user, revision, err)
	}
	if _, err := secrets.List(ctx, metav1.ListOptions{ResourceVersion: revision}); err != nil {
		t.Errorf("%q lists what is not older than %s: %v", user, revision, err)
	}
	if _, err := secrets.List(ctx, metav1.ListOptions{Continue: token, Limit: 1}); may != (err == nil) && !apierrors.IsResourceExpired(err) || !may && !apierrors.IsResourceExpired(err) {
		t.Errorf("%q continues a list: %v", user, err)
	}
	if !may {
		if err := secrets.DeleteCollection(ctx, metav1.DeleteOptions{DryRun: []string{"All"}}, exact); !apierrors.IsForbidden(err) {
			t.Errorf("%q deletes what was there at %s: %v", user, revision, err)
		}
		w, err := secrets.Watch(ctx, metav1.ListOptions{ResourceVersion: revision})
		if err == nil {
			event := <-w.ResultChan()
			w.Stop()
			err = apierrors.FromObject(event.Object)
		}
		if !apierrors.IsResourceExpired(err) {
			t.Errorf("%q watches from %s: %v", user, revision, err)
		}
	}
	for _, from := range []string{"", "0"} {
		w, err := secrets.Watch(ctx, metav1.ListOptions{ResourceVersion: from})
		harness.Must(t, err)
		if event := <-w.ResultChan(); event.Type != "ADDED" || event.Object.(metav1.Object).GetName() != "door" {
			t.Errorf("%q watches from %q: %v", user, from, event)
		}
		w.Stop()
	}
}

// namesAgain gives rights by name, to an object whose name others have had, and rights to get but not to list.
func (f *history) namesAgain(t *testing.T) {
	ctx := t.Context()
	first := f.makeSecret(t, "bank", "key", "lastYears")
	harness.Must(t, f.admin.CoreV1().Secrets("bank").Delete(ctx, "key", metav1.DeleteOptions{}))
	second := f.makeSecret(t, "bank", "key", "thisYears")
	secrets := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}}
	f.role(t, "getter", secrets)
	secrets.ResourceNames, secrets.Verbs = []string{"key"}, []string{"get", "list"}
	f.role(t, "key-holder", secrets)
	for user, role := range map[string]string{"gil": "getter", "ned": "key-holder"} {
		f.mayIn(t, user, role, "bank")
		f.awaitChanges(t, user, "bank")
	}
	for selector, want := range map[string]string{"": "", "kind=Secret": "", "name=key": "create key delete key create key", "name!=door": "", "name=door,operation=create": "create door"} {
		if got := strings.Join(f.names(t, "gil", "bank", selector), " "); got != want {
			t.Errorf("gil, who may get Secrets, sees %q with %q, want %q", got, selector, want)
		}
	}
	if _, err := f.changes("gil", "bank").Get(ctx, second.ResourceVersion, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("gil gets a change that does not name its object: %v", err)
	}
	for _, selector := range []string{"", "name=key"} {
		if seen, _ := f.list(t, "ned", "bank", metav1.ListOptions{FieldSelector: selector}); !slices.Equal(seen, []string{second.ResourceVersion}) {
			t.Errorf("ned, who may get one Secret, sees %q with %q", seen, selector)
		}
	}
	change, err := f.changes("ned", "bank").Get(ctx, second.ResourceVersion, metav1.GetOptions{})
	harness.Must(t, err)
	if address, found := change.Object["address"]; found {
		t.Errorf("ned sees the address %v", address)
	}
	change, err = f.changes("", "bank").Get(ctx, second.ResourceVersion, metav1.GetOptions{})
	if err != nil || change.Object["address"] != "127.0.0.1" {
		t.Errorf("an administrator sees the address %v, %v", change.Object["address"], err)
	}
	f.exactly(t, "ned", first, false)
	f.exactly(t, "ned", second, true)
}

const vaults = `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "vaults.example.com"}, "spec": {
	"group": "example.com", "scope": "Cluster", "names": {"plural": "vaults", "kind": "Vault"}, "versions": [{"name": "v1", "served": true, "storage": true,
	"schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {
		"users": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}, "token": {"type": "string", "format": "password"}}}}}}}}}}]}}`

var vaultsResource = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "vaults"}

// defineVaults creates a definition, and returns what makes a vault.
func (f *history) defineVaults(t *testing.T) (changed *unstructured.Unstructured) {
	t.Helper()
	apply(t, f.kubeconfig, "default", vaults)
	client := dynamic.NewForConfigOrDie(f.config).Resource(vaultsResource)
	vault := &unstructured.Unstructured{}
	harness.Must(t, json.Unmarshal([]byte(`{"apiVersion": "example.com/v1", "kind": "Vault", "metadata": {"name": "main"}, "spec": {"users": [{"name": "jane", "token": "s3cret"}]}}`), vault))
	harness.Retry(t, "vaults are served", func() error {
		_, err := client.Create(t.Context(), vault, metav1.CreateOptions{})
		return err
	})
	changed, err := client.Patch(t.Context(), "main", types.MergePatchType, []byte(`{"spec":{"users":[{"name":"jane","token":"changed!"}]}}`), metav1.PatchOptions{})
	harness.Must(t, err)
	return changed
}

// formerDefinition lets nobody without a right to that see objects of a definition that is gone, though they may read all that are there now.
func (f *history) formerDefinition(t *testing.T) {
	ctx := t.Context()
	client := dynamic.NewForConfigOrDie(f.config)
	definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	former := f.defineVaults(t)
	harness.Must(t, definitions.Delete(ctx, "vaults.example.com", metav1.DeleteOptions{}))
	harness.Retry(t, "the definition is gone", func() error {
		_, err := definitions.Get(ctx, "vaults.example.com", metav1.GetOptions{})
		return untilNotFound(err)
	})
	now := f.defineVaults(t)
	f.role(t, "vault-reader", rbacv1.PolicyRule{APIGroups: []string{"example.com"}, Resources: []string{"vaults"}, Verbs: []string{"get", "list", "watch"}})
	f.mayIn(t, "ned", "vault-reader", "")
	f.awaitChanges(t, "ned", "")
	if got := f.names(t, "ned", "", "resource=vaults.example.com"); !slices.Equal(got, []string{"create main", "update main"}) {
		t.Errorf("ned sees %q", got)
	}
	if got := f.names(t, "", "", "resource=vaults.example.com"); !slices.Equal(got, []string{"create main", "update main", "delete main", "create main", "update main"}) {
		t.Errorf("an administrator sees %q", got)
	}
	config := rest.CopyConfig(f.config)
	config.Impersonate.UserName = "ned"
	for _, of := range []*unstructured.Unstructured{former, now} {
		_, err := dynamic.NewForConfigOrDie(config).Resource(vaultsResource).List(ctx, metav1.ListOptions{
			ResourceVersion: of.GetResourceVersion(), ResourceVersionMatch: metav1.ResourceVersionMatchExact,
		})
		if (of == now) != (err == nil) || of == former && !apierrors.IsForbidden(err) {
			t.Errorf("ned lists vaults at %s: %v", of.GetResourceVersion(), err)
		}
	}
	f.shows(t, now.GetResourceVersion(), "default", "s3cret", "6 bytes", "changed!", "8 bytes")
	before := strconv.Itoa(number(t, now.GetResourceVersion()) - 1)
	diff, _, _ := sqube.Run(t, []string{"diff", "vault/main", "--from", before, "--to", now.GetResourceVersion(), "--kubeconfig", f.kubeconfig})
	blame := succeeds(t, []string{"blame", "vault/main", "--kubeconfig", f.kubeconfig})
	plan := undo(t, f.kubeconfig, "vault/main", "--before", now.GetResourceVersion())
	for printed, want := range map[string]string{
		diff: "-    token: (6 bytes, before)\n+    token: (8 bytes, after)\n", blame: "    token: (8 bytes)\n", plan: ".spec.users[name=jane].token: (8 bytes) → (6 bytes)\n",
	} {
		if !strings.Contains(printed, want) || strings.Contains(printed, "s3cret") || strings.Contains(printed, "changed!") {
			t.Errorf("a command prints, without %q,\n%s", want, printed)
		}
	}
}

// secretValues prints a change of a Secret in each way: only one that is got by its name has the values.
func (f *history) secretValues(t *testing.T) {
	revisions, _ := f.list(t, "", "bank", metav1.ListOptions{FieldSelector: "name=door,operation=update"})
	f.shows(t, revisions[0], "bank", "MTIzNA==", "4 bytes", "NDMyMQ==", "4 bytes")
	watching, err := f.changes("", "bank").Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + revisions[0]})
	harness.Must(t, err)
	defer watching.Stop()
	if event := fmt.Sprint((<-watching.ResultChan()).Object); strings.Contains(event, "NDMyMQ") || !strings.Contains(event, "hidden:true") {
		t.Errorf("a watch sends %s", event)
	}
}

// shows prints a change of values with those sizes.
func (f *history) shows(t *testing.T, revision, namespace string, old, oldSize, now, nowSize string) {
	t.Helper()
	const sizes = "(%s) → (%s)"
	one, list := "get change "+revision+" -n "+namespace, "get changes -A --field-selector metadata.name="+revision
	for command, want := range map[string]string{
		one: fmt.Sprintf(sizes, oldSize, nowSize), one + " -o wide": fmt.Sprintf(sizes, oldSize, nowSize), one + " -o yaml": old,
		list: fmt.Sprintf(sizes, oldSize, nowSize), list + " -o json": `"oldBytes": ` + oldSize[:1],
	} {
		printed := kubectlPrints(t, f.kubeconfig, strings.Fields(command)...)
		values := strings.Contains(printed, old) && strings.Contains(printed, now)
		if any := strings.Contains(printed, old) || strings.Contains(printed, now); !strings.Contains(printed, want) || any != values || values != strings.HasSuffix(command, "-o yaml") {
			t.Errorf("kubectl %s prints\n%s", command, printed)
		}
	}
	raw := "/apis/history.sqube.io/v1alpha1/namespaces/" + namespace + "/changes/" + revision
	table, err := f.admin.CoreV1().RESTClient().Get().AbsPath(raw).Param("includeObject", "Object").SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context())
	if err != nil || strings.Contains(string(table), now) || !strings.Contains(string(table), `"hidden":true`) {
		t.Errorf("the Table with its object is %s, %v", table, err)
	}
}
