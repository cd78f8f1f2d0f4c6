package outage

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// pair is a primary and its standby, with servers configured with both addresses.
type pair struct {
	primary, standby *harness.PostgresServer
	dsn              string // of the primary
	servers          [2]*cluster
}

func startPair(t *testing.T, settings ...string) *pair {
	t.Helper()
	p := &pair{primary: harness.NewPostgresServer(t)}
	p.dsn = p.primary.DSN()
	p.standby = p.primary.Standby(t)
	for _, setting := range append(settings, "SELECT pg_reload_conf()") {
		execute(t, p.dsn, setting)
	}
	both := strings.Replace(p.dsn, harness.ParseDSN(t, p.dsn).Host, harness.ParseDSN(t, p.dsn).Host+","+harness.ParseDSN(t, p.standby.DSN()).Host, 1) + "&target_session_attrs=read-write"
	var starting sync.WaitGroup
	keys := sqube.KeyFile(t)
	for i := range p.servers {
		starting.Go(func() { p.servers[i] = serve(t, both, "--datastore-timeout", "4s", "--pki-encryption-key-file", keys) })
	}
	starting.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return p
}

func version(t *testing.T, object metav1.Object) int {
	t.Helper()
	n, err := strconv.Atoi(object.GetResourceVersion())
	if err != nil {
		t.Error(err)
	}
	return n
}

// TestFailover kills a primary during writes. With synchronous replication, all acknowledged writes are on the standby, which
// the servers find by themselves.
func TestFailover(t *testing.T) {
	t.Parallel()
	p := startPair(t, "ALTER SYSTEM SET synchronous_standby_names = '*'")
	var mu sync.Mutex
	var acknowledged []*corev1.ConfigMap
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(acknowledged)
	}
	ctx, stop := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	for i, s := range p.servers {
		writing.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				created, err := s.CoreV1().ConfigMaps("default").Create(ctx, configMap(fmt.Sprintf("written-%d-%d", i, n)), metav1.CreateOptions{})
				if err == nil {
					mu.Lock()
					acknowledged = append(acknowledged, created)
					mu.Unlock()
				}
			}
		})
	}
	harness.Eventually(t, "there are writes", func() bool { return count() > 20 })
	harness.Must(t, p.primary.Kill())
	before := count()
	execute(t, p.standby.DSN(), "ALTER SYSTEM RESET synchronous_standby_names")
	execute(t, p.standby.DSN(), "SELECT pg_reload_conf()")
	execute(t, p.standby.DSN(), "SELECT pg_promote()")
	harness.Eventually(t, "there are writes to the other", func() bool { return count() > before+20 })
	stop()
	writing.Wait()
	list, err := p.servers[0].CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	harness.Must(t, err)
	kept := map[string]string{}
	for _, object := range list.Items {
		kept[object.Name] = object.ResourceVersion
	}
	newest := 0
	for i, object := range acknowledged {
		if kept[object.Name] != object.ResourceVersion {
			t.Errorf("%s was acknowledged as %s, but is %q", object.Name, object.ResourceVersion, kept[object.Name])
		}
		if i < before {
			newest = max(newest, version(t, object))
		} else if i > before+len(p.servers) && version(t, object) <= newest { // their last writes may be recorded late
			t.Errorf("%s, written afterwards, has resourceVersion %s, but %d was seen before", object.Name, object.ResourceVersion, newest)
		}
	}
}

// TestFailoverThatLosesWrites promotes a standby that lacks the primary's last commits. No resourceVersion is reused with other
// contents: watches end with 410, and informers have the current state.
func TestFailoverThatLosesWrites(t *testing.T) {
	t.Parallel()
	p := startPair(t)
	c := p.servers[0]
	c.creates(t, "kept")
	execute(t, p.dsn, "DO $$ BEGIN WHILE EXISTS (SELECT 1 FROM pg_stat_replication WHERE replay_lsn < pg_current_wal_lsn()) LOOP PERFORM pg_sleep(0.01); PERFORM pg_stat_clear_snapshot(); END LOOP; END $$")
	factory := informers.NewSharedInformerFactoryWithOptions(p.servers[1], 0, informers.WithNamespace("default"))
	lister := factory.Core().V1().ConfigMaps().Lister().ConfigMaps("default")
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	harness.Must(t, p.standby.Stop())
	w := c.watch(t)
	newest := 0
	for i := range 5 {
		lost, err := c.CoreV1().ConfigMaps("default").Create(t.Context(), configMap(fmt.Sprint("lost-", i)), metav1.CreateOptions{})
		harness.Must(t, err)
		newest = version(t, lost)
	}
	harness.Eventually(t, "the informer has them", func() bool { _, err := lister.Get("lost-4"); return err == nil })
	harness.Must(t, p.primary.Kill())
	harness.Must(t, p.standby.Start())
	execute(t, p.standby.DSN(), "SELECT pg_promote()")
	for _, s := range p.servers {
		s.WaitReady(t)
		list, err := s.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
		harness.Must(t, err)
		if at, err := strconv.Atoi(list.ResourceVersion); err != nil || at <= newest {
			t.Errorf("a list is at resourceVersion %s, but %d was seen before", list.ResourceVersion, newest)
		}
		for _, object := range list.Items {
			if strings.HasPrefix(object.Name, "lost-") {
				t.Errorf("%s was not on the standby, but exists", object.Name)
			}
		}
		harness.Eventually(t, "a watch from a lost revision is rejected", func() bool {
			_, body, err := s.do(t, request{method: http.MethodGet, path: "/api/v1/namespaces/default/configmaps?watch=true&timeoutSeconds=2&resourceVersion=" + strconv.Itoa(newest)})
			if err != nil || strings.Contains(string(body), "ADDED") {
				t.Fatalf("it returned %s, %v", body, err)
			}
			return strings.Contains(string(body), `"code":410`)
		})
	}
	c.creates(t, "after")
	var events []string
	for {
		event, err := w.next()
		if err != nil || strings.HasPrefix(event, "ERROR") {
			break // it has to start over
		}
		if events = append(events, event); event == "ADDED after" {
			t.Errorf("a watch continues as if nothing was lost: %q", events)
			break
		}
	}
	harness.Eventually(t, "the informer has the current state", func() bool {
		all, err := c.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return false
		}
		var there []string
		for _, object := range all.Items {
			there = append(there, object.Name)
		}
		slices.Sort(there)
		cached, err := lister.List(labels.Everything())
		harness.Must(t, err)
		var known []string
		for _, object := range cached {
			known = append(known, object.Name)
		}
		slices.Sort(known)
		return slices.Equal(there, known)
	})
}
