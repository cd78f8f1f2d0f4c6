package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sqube/sqube/test/harness"
)

// TestChanges reads the history of a cluster through the API: as an administrator, and as jane, who may view one namespace. On SQLite
// it is packed. Tests of the store read both on each engine.
func TestChanges(t *testing.T) {
	t.Parallel()
	keys := filepath.Join(t.TempDir(), "encryption.yaml")
	harness.Must(t, os.WriteFile(keys, []byte(encryptSecrets), 0o600))
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		pack := engine.Name == "sqlite"
		flags := []string{"--datastore", engine.Datastore, "--encryption-provider-config", keys}
		if pack {
			flags = append(flags, packing...)
		}
		s := serve(t, flags)
		config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
		harness.Must(t, err)
		config.QPS = -1
		f := &history{kubeconfig: s.Kubeconfig, config: config, admin: kubernetes.NewForConfigOrDie(config)}
		f.prepare(t)
		f.prepareOwners(t)
		f.prepareAuthors(t)
		f.prepareTransactions(t)
		if pack {
			packed(t, s, f.admin)
		}
		t.Run("kubectl", f.kubectlShows)
		t.Run("selectors", f.selectors)
		t.Run("pages", f.pages)
		t.Run("kept", func(t *testing.T) { f.kept(t, engine.Datastore) })
		t.Run("rights", f.rights)
		t.Run("authors", f.authors)
		t.Run("transactions", f.transactions)
		t.Run("transactions as one", f.transactionsAsOne)
		t.Run("transactions in the database", func(t *testing.T) { f.historyOfTransactions(t, engine.Datastore) })
		t.Run("collections", f.allOrNothing)
		t.Run("authors in the database", func(t *testing.T) { f.databaseKnowsAuthors(t, engine.Datastore) })
		t.Run("owners", f.owners)
		t.Run("secrets", f.secretValues)
		t.Run("documents", f.documents)
		t.Run("CBOR", f.inCBOR)
		t.Run("watch", f.watch)
		t.Run("exact", f.exact)
		t.Run("former", f.former)
		t.Run("names", f.namesAgain)
		t.Run("definition", f.formerDefinition)
	})
}

// history is a cluster with a few changes.
type history struct {
	kubeconfig string
	config     *rest.Config
	admin      kubernetes.Interface
}

// prepare writes objects in the namespaces shop and bank.
func (f *history) prepare(t *testing.T) {
	ctx := t.Context()
	for _, name := range []string{"shop", "bank"} {
		_, err := f.admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		harness.Must(t, err)
		settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"color": "red"}}
		_, err = f.admin.CoreV1().ConfigMaps(name).Create(ctx, settings, metav1.CreateOptions{FieldManager: "maker"})
		harness.Must(t, err)
		_, err = f.admin.CoreV1().ConfigMaps(name).Patch(ctx, "settings", types.MergePatchType, []byte(`{"data":{"color":"blue"}}`), metav1.PatchOptions{FieldManager: "painter"})
		harness.Must(t, err)
		door := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "door"}, StringData: map[string]string{"code": "1234"}}
		_, err = f.admin.CoreV1().Secrets(name).Create(ctx, door, metav1.CreateOptions{})
		harness.Must(t, err)
		_, err = f.admin.CoreV1().Secrets(name).Patch(ctx, "door", types.MergePatchType, []byte(`{"stringData":{"code":"4321"}}`), metav1.PatchOptions{})
		harness.Must(t, err)
	}
	_, err := f.admin.RbacV1().RoleBindings("shop").Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "jane"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "view"},
		Subjects: []rbacv1.Subject{{Kind: "User", Name: "jane"}},
	}, metav1.CreateOptions{})
	harness.Must(t, err)
	harness.Retry(t, "jane may list changes", func() error {
		_, err := f.changes("jane", "shop").List(ctx, metav1.ListOptions{})
		return err
	})
}

// prepareOwners makes a leaf that belongs to a Secret, which changes its owner, and deletes that: everything below follows. Then others
// have their names.
func (f *history) prepareOwners(t *testing.T) {
	ctx, maps, secrets := t.Context(), f.admin.CoreV1().ConfigMaps("shop"), f.admin.CoreV1().Secrets("shop")
	meta := func(name, kind string, owner metav1.Object) metav1.ObjectMeta {
		m := metav1.ObjectMeta{Name: name}
		if owner != nil {
			m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: kind, Name: owner.GetName(), UID: owner.GetUID()}}
		}
		return m
	}
	makeMap := func(name, kind string, owner metav1.Object) *corev1.ConfigMap {
		made, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: meta(name, kind, owner), Data: map[string]string{"color": "red"}}, metav1.CreateOptions{})
		harness.Must(t, err)
		return made
	}
	first, second := makeMap("first", "", nil), makeMap("second", "", nil)
	middle, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: meta("middle", "ConfigMap", first)}, metav1.CreateOptions{})
	harness.Must(t, err)
	leaf := makeMap("leaf", "Secret", middle)
	middle.OwnerReferences = meta("", "ConfigMap", second).OwnerReferences
	_, err = secrets.Update(ctx, middle, metav1.UpdateOptions{})
	harness.Must(t, err)
	leaf.Data = map[string]string{"color": "green"}
	_, err = maps.Update(ctx, leaf, metav1.UpdateOptions{})
	harness.Must(t, err)
	harness.Must(t, maps.Delete(ctx, "second", metav1.DeleteOptions{}))
	harness.Retry(t, "the leaf is deleted", func() error {
		if _, err := maps.Get(ctx, "leaf", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %v", err)
		}
		return nil
	})
	_, err = secrets.Create(ctx, &corev1.Secret{ObjectMeta: meta("middle", "ConfigMap", makeMap("second", "", nil))}, metav1.CreateOptions{})
	harness.Must(t, err)
}

// owners compares the owners of the leaf with those that it had at each change, in both orders. Jane, who may not get Secrets, does not
// learn whose the Secret is.
func (f *history) owners(t *testing.T) {
	for user, want := range map[string][]string{
		"":     {"create middle first", "update middle second", "delete middle second"},
		"jane": {"create middle", "update middle", "delete middle"},
	} {
		for _, order := range []string{"", ",order=newest"} {
			list, err := f.changes(user, "shop").List(t.Context(), metav1.ListOptions{FieldSelector: "kind=ConfigMap,name=leaf" + order})
			harness.Must(t, err)
			var got []string
			for _, item := range list.Items {
				line := item.Object["operation"].(string)
				owners, _, _ := unstructured.NestedSlice(item.Object, "owners")
				for _, owner := range owners {
					line += " " + owner.(map[string]any)["name"].(string)
				}
				got = append(got, line)
			}
			if order != "" {
				slices.Reverse(got)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%q sees the owners %q, want %q", user, got, want)
			}
		}
	}
}

var changesResource = schema.GroupVersionResource{Group: "history.sqube.io", Version: "v1alpha1", Resource: "changes"}

// changes returns a client of a user, "" for the administrator.
func (f *history) changes(user, namespace string) dynamic.ResourceInterface {
	config := rest.CopyConfig(f.config)
	config.Impersonate.UserName = user
	return dynamic.NewForConfigOrDie(config).Resource(changesResource).Namespace(namespace)
}

func (f *history) kubectlShows(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"get changes -n shop --field-selector name=settings", `^REVISION +AGE +OPERATION +OBJECT +USER +MANAGER +CHANGED
\d+ +\d+s +create +configmap/settings +kubernetes-admin +maker +<none>
\d+ +\d+s +update +configmap/settings +kubernetes-admin +painter +\.data\.color: red → blue
$`},
		{"get changes -n bank --field-selector kind=secret,operation=update -o wide", `VALUES\n\d+ .* \.data\.code: \(4 bytes\) → \(4 bytes\)\n$`},
		{"get changes -A --field-selector kind=Namespace,name=shop", `^NAMESPACE +REVISION .*\n +\d+ +\d+s +create +namespace/shop `},
		{"get changes -n shop -o yaml --field-selector field=.data.color", "changed:\n  - new: blue\n    old: red\n    path: .data.color\n"},
		{"explain changes.changed.path", `\.spec\.template\.spec\.containers\[name=web\]\.image`},
		{"api-resources --api-group=history.sqube.io", `changes +history\.sqube\.io/v1alpha1 +true +Change\n`},
	} {
		if out := kubectlPrints(t, f.kubeconfig, strings.Fields(test.args)...); !regexp.MustCompile(test.want).MatchString(out) {
			t.Errorf("kubectl %s prints\n%s", test.args, out)
		}
	}
	list, err := f.changes("", "").List(t.Context(), metav1.ListOptions{FieldSelector: "kind=Namespace,name=bank"})
	harness.Must(t, err)
	name := list.Items[0].GetName()
	if out := kubectlPrints(t, f.kubeconfig, "get", "change", name, "-n", "shop", "-o", "name"); out != "change.history.sqube.io/"+name+"\n" {
		t.Errorf("a change of a namespace is got as %s", out)
	}
}

// names returns the objects of a list, as operation name.
func (f *history) names(t *testing.T, user, namespace, selector string) (names []string) {
	t.Helper()
	list, err := f.changes(user, namespace).List(t.Context(), metav1.ListOptions{FieldSelector: selector})
	harness.Must(t, err)
	for _, item := range list.Items {
		object := item.Object["object"].(map[string]any)
		names = append(names, fmt.Sprintf("%s %s", item.Object["operation"], object["name"]))
	}
	return names
}

func (f *history) selectors(t *testing.T) {
	ours := "fieldManager=painter"
	for selector, want := range map[string]string{
		ours: "update settings", ours + ",user=kubernetes-admin": "update settings", ours + ",user=jane": "", ours + ",user!=jane": "update settings",
		ours + ",kind=configmap": "update settings", ours + ",kind=Secret": "", ours + ",resource=configmaps,group=": "update settings",
		ours + ",group=apps": "", ours + ",operation=update": "update settings", ours + ",operation!=update": "",
		ours + ",since=1h": "update settings", ours + ",until=1h": "", ours + ",since=2001-01-01T00:00:00Z": "update settings",
		ours + ",field=.data": "update settings", ours + ",field=data.color": "update settings", ours + ",field=.data.col": "",
		ours + ",namespace=shop": "update settings", ours + ",namespace=bank": "", ours + ",afterRevision=1": "update settings", ours + ",beforeRevision=2": "",
		ours + ",afterRevision=9223372036854775807": "", ours + ",beforeRevision=9223372036854775807": "update settings", ours + ",beforeRevision=0": "",
		ours + ",metadata.name=9223372036854775807": "", ours + ",until=0001-01-01T00:00:00Z": "", ours + ",since=0001-01-01T00:00:00Z": "update settings",
		ours + ",until=1969-12-31T00:00:00Z": "",
		"name=settings,order=newest":         "update settings create settings", "name=settings": "create settings update settings",
	} {
		if got := strings.Join(f.names(t, "", "shop", selector), " "); got != want {
			t.Errorf("%s selects %q, want %q", selector, got, want)
		}
	}
	for _, wrong := range []string{"color=red", "since=yesterday", "order=size", "field!=.data", "afterRevision=x"} {
		if _, err := f.changes("", "shop").List(t.Context(), metav1.ListOptions{FieldSelector: wrong}); !apierrors.IsBadRequest(err) {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

// list reads all pages.
func (f *history) list(t *testing.T, user, namespace string, options metav1.ListOptions) (revisions []string, at string) {
	t.Helper()
	for {
		page, err := f.changes(user, namespace).List(t.Context(), options)
		harness.Must(t, err)
		if page.GetRemainingItemCount() != nil {
			t.Errorf("a page says that %d remain", *page.GetRemainingItemCount())
		}
		if page.GetContinue() != "" && int64(len(page.Items)) != options.Limit {
			t.Errorf("a page that is not the last has %d of %d changes", len(page.Items), options.Limit)
		}
		for _, item := range page.Items {
			revisions = append(revisions, item.GetName())
		}
		if at == "" {
			at = page.GetResourceVersion()
		} else if at != page.GetResourceVersion() {
			t.Errorf("pages are at %s and %s", at, page.GetResourceVersion())
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return revisions, at
		}
	}
}

func (f *history) pages(t *testing.T) {
	const selector = "resource!=leases" // of which versions are left out when they are packed
	whole, at := f.list(t, "", "", metav1.ListOptions{FieldSelector: selector})
	if !slices.IsSortedFunc(whole, byRevision) || len(whole) < 100 {
		t.Errorf("all changes: %q", whole)
	}
	exact := metav1.ListOptions{ResourceVersion: at, ResourceVersionMatch: metav1.ResourceVersionMatchExact, FieldSelector: selector}
	if again, _ := f.list(t, "", "", exact); !slices.Equal(again, whole) {
		t.Errorf("at %s, there are %d instead of %d", at, len(again), len(whole))
	}
	before := selector + ",beforeRevision=" + next(t, whole[len(whole)-1])
	inPages, _ := f.list(t, "", "", metav1.ListOptions{Limit: 7, FieldSelector: before})
	newest, _ := f.list(t, "", "", metav1.ListOptions{Limit: 7, FieldSelector: before + ",order=newest"})
	slices.Reverse(newest)
	if !slices.Equal(inPages, whole) || !slices.Equal(newest, whole) {
		t.Errorf("of %d changes, pages have %d, and %d in reverse", len(whole), len(inPages), len(newest))
	}
	if _, err := f.changes("", "").List(t.Context(), metav1.ListOptions{Continue: "x"}); !apierrors.IsBadRequest(err) {
		t.Errorf("a wrong token: %v", err)
	}
}

// kept compares what lists say of how far back changes are kept with what the command says, for whoever may list changes.
func (f *history) kept(t *testing.T, database string) {
	_, line, _ := strings.Cut(succeeds(t, []string{"history", "--kept", "--datastore", database}), "\n")
	want := strings.Fields(line) // from, to, from revision, to revision, packed
	for _, user := range []string{"", "jane"} {
		page, err := f.changes(user, "shop").List(t.Context(), metav1.ListOptions{Limit: 1, FieldSelector: "order=newest"})
		harness.Must(t, err)
		kept, _, _ := unstructured.NestedStringMap(page.Object, "kept")
		if kept["since"] != want[0] || kept["revision"] != want[2] {
			t.Errorf("to %q, changes are kept since %v, want %q", user, kept, want)
		}
		page, err = f.changes(user, "shop").List(t.Context(), metav1.ListOptions{Limit: 1, Continue: page.GetContinue()})
		harness.Must(t, err)
		if again, found := page.Object["kept"]; found {
			t.Errorf("the second page has %v", again)
		}
	}
}

func byRevision(a, b string) int {
	x, _ := strconv.Atoi(a)
	y, _ := strconv.Atoi(b)
	return x - y
}

func next(t *testing.T, revision string) string {
	t.Helper()
	n, err := strconv.Atoi(revision)
	harness.Must(t, err)
	return strconv.Itoa(n + 1)
}

// rights compares what jane sees with what she may get: no Secrets, nothing of other namespaces.
func (f *history) rights(t *testing.T) {
	ctx := t.Context()
	seen, _ := f.list(t, "jane", "shop", metav1.ListOptions{})
	var hidden, allowed []string
	all, err := f.changes("", "").List(ctx, metav1.ListOptions{})
	harness.Must(t, err)
	for _, item := range all.Items {
		object := item.Object["object"].(map[string]any)
		may := object["namespace"] == "shop" && object["kind"] != "Secret" && object["kind"] != "RoleBinding"
		if may {
			allowed = append(allowed, item.GetName())
		} else if object["namespace"] == "shop" {
			hidden = append(hidden, item.GetName())
		}
	}
	if !slices.Equal(seen, allowed) || len(hidden) < 3 {
		t.Errorf("jane sees %q of %q; hidden are %q", seen, allowed, hidden)
	}
	if paged, _ := f.list(t, "jane", "shop", metav1.ListOptions{Limit: 1}); !slices.Equal(paged, allowed) {
		t.Errorf("in pages, jane sees %q", paged)
	}
	last := hidden[len(hidden)-1]
	if _, err := f.changes("jane", "shop").Get(ctx, last, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a hidden change: %v", err)
	}
	for _, selector := range []string{"kind=Secret", "name=door", "field=.data.code", "metadata.name=" + last} {
		list, err := f.changes("jane", "shop").List(ctx, metav1.ListOptions{FieldSelector: selector, Limit: 1})
		if err != nil || len(list.Items) > 0 || list.GetContinue() != "" {
			t.Errorf("%s shows jane %v, %v", selector, list, err)
		}
	}
	for _, namespace := range []string{"", "bank"} {
		if _, err := f.changes("jane", namespace).List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("jane lists changes of the namespace %q: %v", namespace, err)
		}
	}
	// With the right to list changes everywhere, she still sees only those of objects that she may get.
	f.mayListEverywhere(t)
	if everywhere, _ := f.list(t, "jane", "", metav1.ListOptions{FieldSelector: "beforeRevision=" + next(t, all.GetResourceVersion())}); !slices.Equal(everywhere, append(allowed[:0:0], f.withNamespace(t, allowed)...)) {
		t.Errorf("everywhere, jane sees %q of %q", everywhere, allowed)
	}
}

// withNamespace adds the changes of Namespace shop, which a viewer of the namespace may get.
func (f *history) withNamespace(t *testing.T, revisions []string) []string {
	own, _ := f.list(t, "", "", metav1.ListOptions{FieldSelector: "kind=Namespace,name=shop"})
	return slices.SortedFunc(slices.Values(slices.Concat(revisions, own)), byRevision)
}

func (f *history) mayListEverywhere(t *testing.T) {
	ctx := t.Context()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "historian"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"history.sqube.io"}, Resources: []string{"changes"}, Verbs: []string{"*"}}}}
	_, err := f.admin.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
	harness.Must(t, err)
	_, err = f.admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "historian"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "historian"},
		Subjects: []rbacv1.Subject{{Kind: "User", Name: "jane"}},
	}, metav1.CreateOptions{})
	harness.Must(t, err)
	harness.Retry(t, "jane may list all changes", func() error {
		_, err := f.changes("jane", "").List(ctx, metav1.ListOptions{Limit: 1})
		return err
	})
}

// watch lists while others write, and watches from there: jane gets each change once, in order, and no Secret's.
func (f *history) watch(t *testing.T) {
	const writers, writes = 4, 25
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for i := range writes {
				meta := metav1.ObjectMeta{Name: fmt.Sprintf("w%d-%d", w, i)}
				_, err := f.admin.CoreV1().ConfigMaps("shop").Create(ctx, &corev1.ConfigMap{ObjectMeta: meta}, metav1.CreateOptions{FieldManager: "writer"})
				if err == nil {
					_, err = f.admin.CoreV1().Secrets("shop").Create(ctx, &corev1.Secret{ObjectMeta: meta}, metav1.CreateOptions{FieldManager: "writer"})
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	options := metav1.ListOptions{FieldSelector: "fieldManager=writer", Limit: 10}
	got, at := f.list(t, "jane", "shop", options)
	watching, err := f.changes("jane", "shop").Watch(ctx, metav1.ListOptions{FieldSelector: options.FieldSelector, ResourceVersion: at})
	harness.Must(t, err)
	for len(got) < writers*writes {
		event, ok := <-watching.ResultChan()
		if !ok || event.Type != "ADDED" {
			t.Fatalf("after %d changes: %v", len(got), event)
		}
		got = append(got, event.Object.(metav1.Object).GetName())
	}
	watching.Stop()
	writing.Wait()
	want, _ := f.list(t, "jane", "shop", options)
	if !slices.Equal(got, want) || len(want) != writers*writes {
		t.Errorf("list and watch have %d changes instead of %d: %q", len(got), len(want), got)
	}

	// A watch that begins with the existing changes marks their end.
	initial := true
	watching, err = f.changes("jane", "shop").Watch(ctx, metav1.ListOptions{
		FieldSelector: "name=settings", SendInitialEvents: &initial, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	harness.Must(t, err)
	defer watching.Stop()
	var kinds []string
	for event := range watching.ResultChan() {
		kinds = append(kinds, string(event.Type))
		if event.Type == "BOOKMARK" {
			if event.Object.(metav1.Object).GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
				t.Errorf("the bookmark is %v", event.Object)
			}
			break
		}
	}
	if !slices.Equal(kinds, []string{"ADDED", "ADDED", "BOOKMARK"}) {
		t.Errorf("it sends %q", kinds)
	}
}

// exact gets objects as they were, in each format.
func (f *history) exact(t *testing.T) {
	ctx, shop := t.Context(), f.admin.CoreV1().RESTClient()
	revisions, _ := f.list(t, "", "shop", metav1.ListOptions{FieldSelector: "kind=Secret,name=door"})
	get := func(name, revision string) rest.Result {
		return shop.Get().Namespace("shop").Resource("secrets").Name(name).
			Param("resourceVersion", revision).Param("resourceVersionMatch", "Exact").MaxRetries(0).Do(ctx)
	}
	for i, code := range []string{"1234", "4321"} {
		secret := &corev1.Secret{}
		harness.Must(t, get("door", revisions[i]).Into(secret)) // protobuf
		if string(secret.Data["code"]) != code || secret.ResourceVersion != revisions[i] {
			t.Errorf("at %s it is %v", revisions[i], secret)
		}
	}
	path := "/api/v1/namespaces/shop/secrets/door?resourceVersionMatch=Exact&resourceVersion=" + revisions[0]
	var secret corev1.Secret
	harness.Must(t, json.Unmarshal([]byte(kubectlPrints(t, f.kubeconfig, "get", "--raw", path)), &secret))
	if string(secret.Data["code"]) != "1234" {
		t.Errorf("as JSON it is %v", secret)
	}
	before := strconv.Itoa(func() int { n, _ := strconv.Atoi(revisions[0]); return n - 1 }())
	if err := get("door", before).Error(); !apierrors.IsNotFound(err) {
		t.Errorf("before its creation: %v", err)
	}
	harness.Must(t, f.admin.CoreV1().Secrets("shop").Delete(ctx, "door", metav1.DeleteOptions{}))
	harness.Must(t, get("door", revisions[1]).Error())
	if err := get("door", "999999999").Error(); !apierrors.IsTimeout(err) && !strings.Contains(fmt.Sprint(err), "Too large resource version") {
		t.Errorf("in the future: %v", err)
	}
	for _, wrong := range []string{"", "0", "x"} {
		if err := get("door", wrong).Error(); !apierrors.IsBadRequest(err) {
			t.Errorf("at %q: %v", wrong, err)
		}
	}
}
