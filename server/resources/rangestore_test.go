package resources

import (
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/registry/core/service/allocator"

	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage"
	"github.com/sqube/sqube/sqlstore/storetest"
	"github.com/sqube/sqube/test/engines"
	"github.com/sqube/sqube/test/harness"
)

const testRange = "30000-30099"

// newTestRanges returns two range stores on one database, like those of two servers.
func newTestRanges(t *testing.T, open storetest.Opener) (a, b *rangeStore) {
	t.Helper()
	store := storetest.Open(t, open, sqlstore.Options{})
	make := func() *rangeStore {
		options, err := NewRESTOptions(DefaultVersions(), apistorage.Decorator(store, nil))
		harness.Must(t, err)
		s, err := newRangeStore(options, "servicenodeports", allocator.NewAllocationMapWithOffset(100, testRange, 16))
		harness.Must(t, err)
		t.Cleanup(s.Destroy)
		return s
	}
	return make(), make()
}

// initialize creates the stored object, like the repair loop.
func initialize(t *testing.T, s *rangeStore) {
	t.Helper()
	stored, err := s.Get()
	harness.Must(t, err)
	stored.Range = testRange
	harness.Must(t, s.CreateOrUpdate(stored))
}

func TestRangeStoreSQLite(t *testing.T)   { testRangeStore(t, engines.SQLite) }
func TestRangeStorePostgres(t *testing.T) { testRangeStore(t, engines.Postgres) }

func testRangeStore(t *testing.T, engine storetest.Opener) {
	t.Run("items can't be allocated before the set is known", func(t *testing.T) {
		a, _ := newTestRanges(t, engine)
		if _, _, err := a.AllocateNext(); !apierrors.IsServiceUnavailable(err) {
			t.Fatalf("got %v, want ServiceUnavailable", err)
		}
		initialize(t, a)
		if taken, err := a.Allocate(7); err != nil || !taken {
			t.Fatalf("taken %t, error %v", taken, err)
		}
	})

	t.Run("an item is allocated by one server only", func(t *testing.T) {
		a, b := newTestRanges(t, engine)
		initialize(t, a)
		if taken, err := a.Allocate(7); err != nil || !taken {
			t.Fatalf("taken %t, error %v", taken, err)
		}
		if taken, err := b.Allocate(7); err != nil || taken {
			t.Fatalf("taken twice: %t, error %v", taken, err)
		}
		harness.Must(t, b.Release(7))
		if taken, err := a.Allocate(7); err != nil || !taken {
			t.Fatalf("not taken after its release: %t, error %v", taken, err)
		}
	})

	t.Run("concurrent servers allocate each item of the range once", func(t *testing.T) {
		a, b := newTestRanges(t, engine)
		initialize(t, a)
		var mu sync.Mutex
		owners := map[int]int{}
		var running sync.WaitGroup
		for _, s := range []*rangeStore{a, b} {
			running.Go(func() {
				for range 60 {
					item, taken, err := s.AllocateNext()
					if err != nil {
						t.Error(err)
						return
					}
					if taken {
						mu.Lock()
						owners[item]++
						mu.Unlock()
					}
				}
			})
		}
		running.Wait()
		if len(owners) != 100 {
			t.Errorf("%d of 100 items were taken", len(owners))
		}
		for item, count := range owners {
			if count != 1 {
				t.Errorf("item %d was taken %d times", item, count)
			}
		}
		if _, err := a.Allocate(0); err != nil {
			t.Fatal(err)
		}
		if free := a.Free(); free != 0 {
			t.Errorf("%d are free", free)
		}
	})

	t.Run("a failed change is reverted", func(t *testing.T) {
		a, _ := newTestRanges(t, engine)
		initialize(t, a)
		if _, err := a.Allocate(100); err == nil {
			t.Fatal("an item outside the range was taken")
		}
		if free := a.Free(); free != 100 || a.Has(100) {
			t.Errorf("%d are free, has 100: %t", free, a.Has(100))
		}
	})

	t.Run("a stale snapshot conflicts", func(t *testing.T) {
		a, b := newTestRanges(t, engine)
		initialize(t, a)
		stale, err := b.Get()
		harness.Must(t, err)
		if _, err := a.Allocate(3); err != nil {
			t.Fatal(err)
		}
		if err := b.CreateOrUpdate(stale); !apierrors.IsConflict(err) {
			t.Errorf("got %v, want a conflict", err)
		}
		if err := b.CreateOrUpdate(&core.RangeAllocation{Range: testRange}); !apierrors.IsConflict(err) {
			t.Errorf("creating it again: got %v, want a conflict", err)
		}
	})
}

// TestRepairAfterAFailedFirstPass checks that each loop soon retries a first pass that fails, for example because the database is
// down. The server is not ready before a pass succeeds.
func TestRepairAfterAFailedFirstPass(t *testing.T) {
	const pause, never = time.Millisecond, time.Hour
	passes := 0
	pass := func() bool {
		passes++
		return passes > 1
	}
	for name, repair := range map[string]loop{
		"addresses": restartAfterFailure(func() loop {
			return func(onFirstSuccess func(), stop chan struct{}) {
				if pass() {
					onFirstSuccess()
					<-stop
				}
			}
		}, pause),
		"ports": retryFirstPass(func(interval time.Duration) loop {
			return func(onFirstSuccess func(), stop chan struct{}) {
				wait.Until(func() {
					if pass() {
						onFirstSuccess()
					}
				}, interval, stop)
			}
		}, pause, never),
	} {
		passes = 0
		stop, ended, succeeded := make(chan struct{}), make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			repair(func() { close(succeeded) }, stop)
		}()
		select {
		case <-succeeded:
		case <-time.After(time.Minute):
			t.Fatalf("%s: no second pass", name)
		}
		close(stop)
		<-ended
		if passes != 2 {
			t.Errorf("%s: %d passes", name, passes)
		}
	}
}
