package servertest_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/sqube/sqube/server"
	"github.com/sqube/sqube/server/servertest"
	"github.com/sqube/sqube/test/harness"
)

// releasePatience is longer than net/http keeps a connection in memory if a client, such as an informer, sends a request while it
// is being closed (90 seconds).
const releasePatience = 3 * time.Minute

// TestNothingIsLeft starts and stops servers, with watches and informers and while controllers are being built, and checks that no
// goroutines or files remain. The goroutines that Kubernetes' libraries start once per process exist after the first server.
func TestNothingIsLeft(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	start := func() *servertest.Server {
		s, err := servertest.Start(servertest.Options{CRDs: []string{"testdata/crds"}})
		harness.Must(t, err)
		return s
	}
	stop := func(s *servertest.Server) {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}
	use := func() {
		s := start()
		end := watch(t, client(t, s))
		stop(s)
		end()
	}
	use()
	fail(t)
	runtime.GC()
	before := stacks()
	for range 2 {
		use()
		stop(start())
		fail(t)
	}
	more := ""
	err := wait.PollUntilContextTimeout(t.Context(), 3*time.Second, releasePatience, true, func(context.Context) (bool, error) {
		runtime.GC() // makes client-go drop unused transports, and the goroutines that reload their certificates
		more = grown(before, stacks())
		return more == "", nil
	})
	if err != nil {
		t.Errorf("goroutines remain, started by %s", more)
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("%d files remain: %v", len(left), err)
	}
}

// fail starts servers that can't start, each for a reason that is noticed later than that of the one before.
func fail(t *testing.T) {
	t.Helper()
	notDatabase := filepath.Join(t.TempDir(), "text")
	harness.Must(t, os.WriteFile(notDatabase, []byte("no database"), 0o600))
	for why, o := range map[string]servertest.Options{
		"a gate":       {FeatureGates: map[string]bool{"Nonsense": true}},
		"a time":       {At: time.Now()},
		"a database":   {From: notDatabase},
		"a definition": {CRDs: []string{"nowhere"}},
		"a webhook":    {Webhooks: []string{"nowhere"}},
		"an option":    {Configure: func(o *server.Options) { o.Controllers = []string{"nonsense"} }},
		"a file":       {Configure: func(o *server.Options) { o.Access.Authentication.TokenFile.TokenFile = "nowhere" }},
		"a key":        {Configure: func(o *server.Options) { o.Encryption.ConfigFile = notDatabase }},
	} {
		if s, err := servertest.Start(o); err == nil {
			t.Errorf("a server with an invalid %s starts", why)
			_ = s.Stop()
		}
	}
}

// TestNothingIsLeftOfAFailure starts servers that fail when they are built, because they need an API that is turned off. No goroutine remains
// but those of upstream's controllers that were made and never ran: they can't be ended.
func TestNothingIsLeftOfAFailure(t *testing.T) {
	fail := func() {
		_, err := servertest.Start(servertest.Options{Configure: func(o *server.Options) {
			harness.Must(t, o.RuntimeConfig.Set("rbac.authorization.k8s.io/v1=false"))
		}})
		if err == nil || !strings.Contains(err.Error(), "rbac.authorization.k8s.io/v1=true") {
			t.Fatalf("without RBAC's API: %v", err)
		}
	}
	remaining := func() map[string]int {
		runtime.GC()
		counts := stacks()
		for by := range counts {
			if strings.Contains(by, "workqueue.new") || strings.HasSuffix(by, "watch.NewBroadcaster") {
				delete(counts, by)
			}
		}
		return counts
	}
	fail()
	before := remaining()
	fail()
	fail()
	harness.Retry(t, "goroutines end", func() error {
		if more := grown(before, remaining()); more != "" {
			return errors.New("some remain, started by " + more)
		}
		return nil
	})
}

// watch opens a watch and starts informers of two kinds. stop ends them.
func watch(t *testing.T, c kubernetes.Interface) (stop func()) {
	t.Helper()
	events, err := c.CoreV1().Namespaces().Watch(t.Context(), metav1.ListOptions{})
	harness.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	factory := informers.NewSharedInformerFactory(c, 0)
	for _, informer := range []cache.SharedIndexInformer{factory.Core().V1().ConfigMaps().Informer(), factory.Core().V1().Pods().Informer()} {
		if err := informer.SetWatchErrorHandler(func(*cache.Reflector, error) {}); err != nil { // the server stops before the informers
			t.Fatal(err)
		}
	}
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			t.Errorf("the informer of %s has not synced", kind)
		}
	}
	return func() {
		events.Stop()
		cancel()
		factory.Shutdown()
	}
}

// stacks counts the goroutines by the function that started them.
func stacks() map[string]int {
	text := make([]byte, 16<<20)
	text = text[:runtime.Stack(text, true)]
	counts := map[string]int{}
	for _, stack := range strings.Split(string(text), "\n\n") {
		_, by, _ := strings.Cut(stack, "\ncreated by ")
		by, _, _ = strings.Cut(by, " in goroutine")
		counts[by]++
	}
	return counts
}

// grown names the functions whose goroutines have become more.
func grown(before, now map[string]int) string {
	var more []string
	for by, n := range now {
		if n > before[by] {
			more = append(more, by)
		}
	}
	return strings.Join(more, ", ")
}
