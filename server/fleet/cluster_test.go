package fleet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sqube/sqube/server/fleet/v1alpha1"
	"github.com/sqube/sqube/test/harness"
)

// newTestFleet returns a fleet whose clusters have no servers. started is called when one wakes up, and stopped when it has fallen asleep.
func newTestFleet(t testing.TB, started func(*cluster) error, stopped func(*cluster)) *Fleet {
	t.Helper()
	f := New(Config{})
	f.boot = func(ctx context.Context, r *running) (<-chan error, error) {
		release, err := f.turns.take(r.wanted, r.cluster.name.Namespace)
		if err != nil {
			return nil, err
		}
		defer release()
		if err := started(r.cluster); err != nil {
			return nil, err
		}
		ended := make(chan error, 1)
		go func() {
			<-ctx.Done()
			ended <- r.answered(context.Background())
			stopped(r.cluster)
		}()
		return ended, nil
	}
	running, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { f.alarms.run(running); close(done) }()
	t.Cleanup(func() { stop(); <-done; f.queue.ShutDown() })
	return f
}

func (f *Fleet) addForTest(namespace, name string) *cluster {
	return f.known(&v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name)}})
}

// TestRandomSleep has clusters fall asleep and wake up at random, while requests come and are given up: each is served by a cluster that is
// awake, and none is awake twice.
func TestRandomSleep(t *testing.T) {
	var awake sync.Map // by cluster, for how many servers
	count := func(c *cluster) *atomic.Int32 {
		n, _ := awake.LoadOrStore(c, &atomic.Int32{})
		return n.(*atomic.Int32)
	}
	broken := errors.New("broken")
	f := newTestFleet(t, func(c *cluster) error {
		if rand.N(20) == 0 {
			return broken
		}
		if count(c).Add(1) != 1 {
			t.Errorf("%s is awake twice", c.name)
		}
		return nil
	}, func(c *cluster) { count(c).Add(-1) })
	all := []*cluster{f.addForTest("x", "a"), f.addForTest("x", "b"), f.addForTest("y", "c")}
	var served atomic.Int32
	var asking sync.WaitGroup
	for i := range 1000 {
		c := all[i%len(all)]
		asking.Go(func() {
			ctx := t.Context()
			if rand.N(4) == 0 {
				limited, cancel := context.WithTimeout(ctx, time.Duration(rand.N(1000))*time.Microsecond)
				defer cancel()
				ctx = limited
			}
			_, leave, err := c.enter(ctx, rand.N(3) == 0)
			switch {
			case err == nil:
				if count(c).Load() != 1 {
					t.Errorf("%s serves a request, although it sleeps", c.name)
				}
				served.Add(1)
				time.Sleep(time.Duration(rand.N(300)) * time.Microsecond)
				leave()
			case !errors.Is(err, broken) && ctx.Err() == nil:
				t.Errorf("%s: %v", c.name, err)
			}
		})
		switch rand.N(5) {
		case 0:
			if r := c.current(); r != nil {
				asking.Go(func() { r.ring(time.Now().Add(time.Hour)) })
			}
		case 1:
			asking.Go(func() { c.stop(t.Context()) })
		case 2:
			time.Sleep(time.Duration(rand.N(500)) * time.Microsecond)
		}
	}
	asking.Wait()
	for _, c := range all {
		c.stop(t.Context())
		if n := count(c).Load(); n != 0 {
			t.Errorf("%s: %d servers are left", c.name, n)
		}
	}
	if served.Load() == 0 {
		t.Error("no request was served")
	}
}

// TestIdle checks when a cluster falls asleep: not while a request runs, but while a watch does.
func TestIdle(t *testing.T) {
	f := newTestFleet(t, func(*cluster) error { return nil }, func(*cluster) {})
	c := f.addForTest("x", "a")
	_, leaveWatch, err := c.enter(t.Context(), true)
	harness.Must(t, err)
	_, leave, err := c.enter(t.Context(), false)
	harness.Must(t, err)
	r := c.current()
	r.change(time.Minute)
	later := time.Now().Add(time.Hour)
	if again, _ := r.nap(later); again.IsZero() {
		t.Error("it falls asleep while a request runs")
	}
	leave()
	if again, _ := r.nap(time.Now()); again.IsZero() {
		t.Error("it falls asleep at once")
	}
	if again, _ := r.nap(later); !again.IsZero() {
		t.Error("it does not fall asleep")
	}
	leaveWatch()
	<-r.ended
	if n := c.takeNews(); n == nil || n.wakes != 1 || n.phase != v1alpha1.PhaseAsleep {
		t.Errorf("the status hears %+v", n)
	}
}

// TestNobodyWaits checks that a cluster does not wake up for somebody who has gone before its turn.
func TestNobodyWaits(t *testing.T) {
	f := newTestFleet(t, func(c *cluster) error { t.Errorf("%s woke up", c.name); return nil }, func(*cluster) {})
	var hold []func()
	for range f.turns.free {
		release, err := f.turns.take(t.Context(), "x")
		harness.Must(t, err)
		hold = append(hold, release)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	c := f.addForTest("x", "a")
	go func() { _, _, err := c.enter(ctx, false); done <- err }()
	cancel()
	if err := <-done; err == nil {
		t.Error("no error")
	}
	harness.Eventually(t, "the cluster sleeps", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.running == nil })
	for _, release := range hold {
		release()
	}
}

// TestTurns checks that namespaces take turns, so that one with many clusters does not hold up another.
func TestTurns(t *testing.T) {
	turns := newTurns(1)
	first, err := turns.take(t.Context(), "many")
	harness.Must(t, err)
	got := make(chan string, 8)
	wait := func(namespace string, name string, queued int) {
		go func() {
			release, err := turns.take(t.Context(), namespace)
			if err == nil {
				got <- name
				release()
			}
		}()
		harness.Eventually(t, name+" waits", func() bool {
			turns.mu.Lock()
			defer turns.mu.Unlock()
			n := 0
			for _, l := range turns.lines {
				n += len(l.waiting)
			}
			return n == queued
		})
	}
	for i := range 5 {
		wait("many", fmt.Sprint("many", i), i+1)
	}
	wait("one", "one", 6)
	first()
	order := ""
	for range 6 {
		order += <-got + " "
	}
	if order != "many0 one many1 many2 many3 many4 " {
		t.Errorf("the order was %s", order)
	}
}

// TestAlarms checks that alarms ring in order, and those that are unset do not.
func TestAlarms(t *testing.T) {
	f := newTestFleet(t, nil, nil)
	rung := make(chan int, 10)
	all := make([]alarm, 5)
	now := time.Now()
	for i := range all {
		f.alarms.set(&all[i], now.Add(time.Hour), bell{rung, i})
	}
	f.alarms.set(&all[3], time.Time{}, bell{rung, 3})
	for _, i := range []int{4, 2, 0, 1} {
		f.alarms.set(&all[i], time.Now(), bell{rung, i})
		if got := <-rung; got != i {
			t.Errorf("%d rang, not %d", got, i)
		}
	}
	if len(f.alarms.queue) != 0 {
		t.Error("alarms are left")
	}
}

type bell struct {
	rung chan int
	name int
}

func (b bell) ring(time.Time) { b.rung <- b.name }

// sleeping returns how many bytes and goroutines n clusters take that sleep, all of a pool, with an alarm and watches that may wait.
func sleeping(n int) (bytes float64, goroutines int) {
	var before, after runtime.MemStats
	f := New(Config{})
	goroutines = runtime.NumGoroutine()
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range n {
		o := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprint("team-", i%100), Name: fmt.Sprint("cluster-", i), UID: types.UID(fmt.Sprintf("5b933dfb-e84c-465e-8c43-%012d", i)),
			Annotations: map[string]string{v1alpha1.DatabaseAnnotation: fmt.Sprintf("%020d", i)}, Labels: map[string]string{v1alpha1.PoolLabel: "ci"},
		}}
		c := f.known(o)
		c.parked = &parked{known: make([]mark, maxSeen)}
		f.alarms.set(&c.alarm, time.Now().Add(time.Hour), c)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(f)
	return float64(after.HeapAlloc-before.HeapAlloc) / float64(n), runtime.NumGoroutine() - goroutines
}

// TestAsleepIsSmall checks that a cluster that sleeps costs nothing.
func TestAsleepIsSmall(t *testing.T) {
	bytes, goroutines := sleeping(10_000)
	if bytes > 1024 || goroutines > 0 {
		t.Errorf("a cluster that sleeps takes %.0f bytes; there are %d goroutines more", bytes, goroutines)
	}
}

// BenchmarkAsleep measures what a cluster that sleeps takes in memory.
func BenchmarkAsleep(b *testing.B) {
	for b.Loop() {
		bytes, goroutines := sleeping(10_000)
		b.ReportMetric(bytes, "B/cluster")
		b.ReportMetric(float64(goroutines), "goroutines")
	}
}

// TestOlderObject checks that what is read late of a deleted Cluster does not take the place of a new one of its name.
func TestOlderObject(t *testing.T) {
	f := newTestFleet(t, func(*cluster) error { return nil }, func(*cluster) {})
	object := func(uid types.UID, version string) *v1alpha1.Cluster {
		return &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "a", UID: uid, ResourceVersion: version}}
	}
	f.known(object("old", "5"))
	c := f.known(object("new", "7"))
	if got := f.known(object("old", "6")); got != nil || f.find(c.name) != c {
		t.Errorf("an older object got %v", got)
	}
	_, leave, err := c.enter(t.Context(), false)
	harness.Must(t, err)
	leave()
	if f.known(object("new", "9")) != c {
		t.Error("a change of an object got another cluster")
	}
}
