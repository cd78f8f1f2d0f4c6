package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/test/harness"
)

// twins are two ConfigMaps of the namespace default that only transactions write, which give both the same value.
type twins struct{ name string }

// put writes both in a transaction, and returns their revisions.
func (p twins) put(ctx context.Context, c kubernetes.Interface, transaction, value string) (versions []int64, err error) {
	var operations []string
	for _, name := range p.names() {
		operations = append(operations, fmt.Sprintf(`{"verb":"apply","fieldManager":"test","object":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"default","name":%q},"data":{"value":%q}}}`, name, value))
	}
	return transacted(ctx, c, transaction, operations...)
}

func (p twins) names() []string { return []string{p.name + "-0", p.name + "-1"} }

// isWhole reads the pair at a revision, in a list and one by one: both have that value. The list is of the end of a transaction.
func (p twins) isWhole(t *testing.T, c kubernetes.Interface, revision, end int64, value string) {
	t.Helper()
	exact := func(path string, into any) {
		t.Helper()
		raw, err := c.CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces/default/configmaps"+path).
			Param("resourceVersion", fmt.Sprint(revision)).Param("resourceVersionMatch", "Exact").DoRaw(t.Context())
		harness.Must(t, err)
		harness.Must(t, json.Unmarshal(raw, into))
	}
	var list corev1.ConfigMapList
	exact("", &list)
	found := map[string]string{}
	for _, item := range list.Items {
		if slices.Contains(p.names(), item.Name) {
			found[item.Name] = item.Data["value"]
		}
	}
	for _, name := range p.names() {
		var one corev1.ConfigMap
		exact("/"+name, &one)
		if found[name] != value || one.Data["value"] != value {
			t.Errorf("at revision %d the list has %v, and %s is %v; want %s", revision, found, name, one.Data, value)
		}
	}
	if list.ResourceVersion != fmt.Sprint(end) {
		t.Errorf("the list at revision %d is of %s, want %d", revision, list.ResourceVersion, end)
	}
}

// areEqual checks what a command says of both.
func (p twins) areEqual(t *testing.T, value string, show func(name string) string) {
	t.Helper()
	for _, name := range p.names() {
		if text := show(name); !strings.Contains(text, value) {
			t.Errorf("%s is\n%s\nwant %s", name, text, value)
		}
	}
}

// wentBack checks that changes up to a revision within a transaction have all of that, and that an undo to it does not take it back, as one to
// before it does. The transaction has given the two another value, and a later one the next.
func (p twins) wentBack(t *testing.T, c kubernetes.Interface, kubeconfig string, versions []int64) {
	t.Helper()
	raw, err := c.CoreV1().RESTClient().Get().AbsPath("/apis/history.sqube.io/v1alpha1/namespaces/default/changes").
		Param("resourceVersion", fmt.Sprint(versions[0])).Param("resourceVersionMatch", "Exact").Param("fieldSelector", "transaction=two").DoRaw(t.Context())
	harness.Must(t, err)
	var list changes.ChangeList
	harness.Must(t, json.Unmarshal(raw, &list))
	if len(list.Items) != 2 || list.ResourceVersion != fmt.Sprint(versions[1]) {
		t.Errorf("at revision %d, within a transaction of two writes, it has made %d changes; the list is of %s", versions[0], len(list.Items), list.ResourceVersion)
	}
	for flag, want := range map[string]string{"--to": `"three" → "two"`, "--before": `"three" → "one"`} {
		for _, name := range p.names() {
			revision := versions[0] // for the second, it is that of the first
			if flag == "--before" {
				revision = versions[1]
			}
			if text := succeeds(t, []string{"undo", "configmap/" + name, flag, fmt.Sprint(revision), "--kubeconfig", kubeconfig}); !strings.Contains(text, want) {
				t.Errorf("undoing %s with %s %d plans\n%s\nwant %s", name, flag, revision, text, want)
			}
		}
	}
}
