package sqlstore

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqube/sqube/test/harness"
)

const pageCost = 3 * (FollowBytes + recordOverhead)

// newFollowers returns n followers, and a memory that lets them read that many pages: twice as large, since reads get half of it.
func newFollowers(t *testing.T, pages int64, n int) (*memory, []*Follower) {
	t.Helper()
	s := &Store{memory: newMemory(2 * pages * pageCost)}
	var followers []*Follower
	for range n {
		followers = append(followers, s.Follow(t.Context()))
		time.Sleep(time.Millisecond) // each advances later than the one before
	}
	return s.memory, followers
}

func (f *Follower) isSlow() bool { return errors.Is(context.Cause(f.Context()), ErrSlow) }

// page reads one page.
func (f *Follower) page() error {
	return f.Read(Resource{}, func() (int, error) { return pageCost, nil })
}

// TestSharedChangesCountOnce lets two followers fall behind by the same changes, which are counted once. Over the limit, the one
// that does not advance is ended.
func TestSharedChangesCountOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, f := newFollowers(t, 1, 3)
		h := newHub(0, newCache(0, 0), func(Resource) {}, m)
		defer h.close()
		for _, f := range f {
			f.store.hub = h
			f.Subscribe(Resource{}, "")
		}
		size := m.limit / 4
		change := func(revision int64) {
			time.Sleep(time.Millisecond)
			h.offer(revision-1, revision, []*Change{{Record: Record{Revision: revision, Value: make([]byte, size-2*recordOverhead)}}})
			synctest.Wait()
		}
		reads := func(f *Follower) {
			changes, err := f.sub.Load().Drain()
			harness.Must(t, err)
			for _, c := range changes {
				f.Advance()
				f.Done(c)
			}
		}
		for revision := int64(1); revision <= 4; revision++ {
			change(revision)
			reads(f[1])
		}
		if held := m.held.Load(); held != 4*size || f[0].isSlow() {
			t.Fatalf("changes of %d bytes take %d, and the limit is %d", 4*size, held, m.limit)
		}
		reads(f[2])
		for _, c := range []int64{5, 6} {
			change(c)
			reads(f[1])
		}
		if !f[0].isSlow() || f[1].isSlow() || f[2].isSlow() {
			t.Errorf("ended: %t, %t, %t", f[0].isSlow(), f[1].isSlow(), f[2].isSlow())
		}
		for _, f := range f {
			f.Close()
		}
		if held := m.held.Load(); held != 0 {
			t.Errorf("without followers, %d bytes are held", held)
		}
	})
}

// TestReadsWaitForMemory lets more followers read than there is memory for. Those whose clients receive are not ended; of the
// others, those that block waiting reads are.
func TestReadsWaitForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, f := newFollowers(t, 2, 4)
		for _, f := range f[:2] {
			harness.Must(t, f.page())
		}
		read := make([]error, len(f))
		done := make(chan int, len(f))
		for i := 2; i < len(f); i++ {
			go func() {
				read[i] = f[i].page()
				done <- i
			}()
			synctest.Wait()
		}
		for range 5 { // one client is slow
			time.Sleep(stuckAfter / 2)
			f[1].Advance()
		}
		synctest.Wait()
		if !f[0].isSlow() || f[1].isSlow() || len(done) != 0 {
			t.Fatalf("ended: %t, %t; %d have read", f[0].isSlow(), f[1].isSlow(), len(done))
		}
		f[0].Forget(pageCost)
		f[0].Close()
		if i := <-done; i != 2 || read[i] != nil {
			t.Errorf("follower %d was next, with %v", i, read[i])
		}
		f[3].Stop()
		if i := <-done; i != 3 || !errors.Is(read[i], context.Canceled) {
			t.Errorf("the follower that gave up got %v", read[i])
		}
		for _, f := range f[1:3] {
			f.Forget(pageCost)
			f.Close()
		}
		if m.held.Load() != 0 || m.reserved != 0 || len(m.waiting) != 0 {
			t.Errorf("at the end, %d bytes are held, %d reserved, and %d reads wait", m.held.Load(), m.reserved, len(m.waiting))
		}
	})
}

// TestSlowDatabase reads for longer than a client may receive nothing, while another follower waits for memory.
func TestSlowDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, f := newFollowers(t, 1, 2)
		next := make(chan error, 1)
		err := f[0].Read(Resource{}, func() (int, error) {
			go func() { next <- f[1].page() }()
			time.Sleep(2 * stuckAfter)
			return pageCost, nil
		})
		if err != nil || f[0].isSlow() || len(next) != 0 {
			t.Errorf("the read returned %v; ended: %t; %d others have read", err, f[0].isSlow(), len(next))
		}
		f[0].Forget(pageCost)
		if err := <-next; err != nil || f[1].isSlow() {
			t.Errorf("the next read returned %v; ended: %t", err, f[1].isSlow())
		}
		f[1].Forget(pageCost)
		for _, f := range f {
			f.Close()
		}
		if held := m.held.Load(); held != 0 {
			t.Errorf("without followers, %d bytes are held", held)
		}
	})
}

// TestLargeReadsAreExpected estimates the cost of reads by that of earlier ones.
func TestLargeReadsAreExpected(t *testing.T) {
	m := newMemory(DefaultFollowerMemory)
	large := Cost(1 << 20)
	m.learn(Resource{Name: "a"}, large)
	if m.expected(Resource{Name: "a"}) != large || m.expected(Resource{Name: "b"}) != Cost(FollowBytes) {
		t.Errorf("expected costs are %v", m.costs)
	}
	for range 100 {
		m.learn(Resource{Name: "a"}, 1)
	}
	if len(m.costs) != 0 {
		t.Errorf("after small reads, expected costs are %v", m.costs)
	}
}

// TestEndedOnce fills the queue of a follower that is about to be ended for another reason.
func TestEndedOnce(t *testing.T) {
	m, f := newFollowers(t, 1, 1)
	f[0].store.hub = newHub(0, newCache(0, 0), func(Resource) {}, m)
	defer f[0].store.hub.close()
	sub := f[0].Subscribe(Resource{}, "")
	f[0].ended.Store(true) // as end does first
	c := &Change{Watchers: 1}
	sub.queue = slices.Repeat([]*Change{c}, maxQueue)
	if sub.push(c); m.slow.Load() != 0 {
		t.Error("it was ended twice")
	}
}
