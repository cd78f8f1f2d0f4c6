package outage

import (
	"fmt"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestPooler runs two servers on one database behind PgBouncer in transaction mode: what one writes, the other reads, and its
// watches receive. The schema is also created through it.
func TestPooler(t *testing.T) {
	t.Parallel()
	dsn := harness.PgBouncer(t, harness.Postgres(t))
	var servers [2]*cluster
	var starting sync.WaitGroup
	keys := sqube.KeyFile(t)
	for i := range servers {
		starting.Go(func() { servers[i] = serve(t, dsn, "--pki-encryption-key-file", keys) })
	}
	starting.Wait()
	if t.Failed() {
		return
	}
	w := servers[1].watch(t)
	var expected []string
	for i := range 20 {
		name := fmt.Sprint("pooled-", i)
		harness.Must(t, servers[i%2].create(t, name))
		if _, err := servers[1-i%2].CoreV1().ConfigMaps("default").Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		expected = append(expected, "ADDED "+name)
	}
	w.brings(t, expected...)
	var writing sync.WaitGroup
	for i := range 40 { // at once, on more connections than the pooler has sessions
		writing.Go(func() {
			if err := servers[i%2].create(t, fmt.Sprint("at-once-", i)); err != nil {
				t.Error(err)
			}
		})
	}
	writing.Wait()
	seen := map[string]bool{}
	for range 40 {
		event, err := w.next()
		if err != nil || seen[event] {
			t.Fatalf("the watch returned %q, %v, after %d of 40", event, err, len(seen))
		}
		seen[event] = true
	}
	list, err := servers[0].CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{LabelSelector: "of=outage", Limit: 7})
	if err != nil || len(list.Items) != 7 || list.Continue == "" {
		t.Fatalf("a page: %v, %v", list, err)
	}
	rest, err := servers[1].CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{LabelSelector: "of=outage", Continue: list.Continue})
	if err != nil || len(rest.Items) != 53 {
		t.Fatalf("the rest: %d, %v", len(rest.Items), err)
	}
}
