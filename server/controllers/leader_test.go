package controllers

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"

	"github.com/sqube/sqube/server/informer"
	"github.com/sqube/sqube/test/harness"
)

// TestLostLease checks that a leader whose database no longer answers stops its controllers before another server may start
// them.
func TestLostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		harness.Must(t, lead(t.Context(), Config{Discovery: unchanged{}}, &fakeLock{hangs: true}))
		if took := time.Since(began); took >= leaseDuration {
			t.Errorf("the controllers stopped after %s, want less than %s", took, leaseDuration)
		}
	})
}

// unchanged is discovery that never changes.
type unchanged struct{}

func (unchanged) AddInvalidationCallback(func()) {}

// TestTakenLease checks that a leader whose Lease another server has taken, such as while its process was paused, stops its controllers
// when it next looks, and does not release the Lease.
func TestTakenLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := &fakeLock{}
		var taken time.Time
		time.AfterFunc(time.Minute, func() {
			taken = time.Now()
			lock.take("another")
		})
		harness.Must(t, lead(t.Context(), Config{Discovery: unchanged{}}, lock))
		if took := time.Since(taken); took > retryPeriod {
			t.Errorf("the controllers stopped after %s, want at most %s", took, retryPeriod)
		}
		if got := lock.holder(); got != "another" {
			t.Errorf("the Lease is held by %q", got)
		}
	})
}

// TestReleasedLease checks that a leader that stops releases its Lease, unless another server has taken it.
func TestReleasedLease(t *testing.T) {
	for _, taken := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			lock := &fakeLock{}
			ended := make(chan error)
			go func() { ended <- lead(ctx, Config{Discovery: unchanged{}}, lock) }()
			synctest.Wait()
			want := ""
			if taken {
				want = "another"
				lock.take(want)
			}
			cancel()
			harness.Must(t, <-ended)
			if got := lock.holder(); got != want {
				t.Errorf("taken %t: the Lease is held by %q, want %q", taken, got, want)
			}
		})
	}
}

// TestServersOfOneName checks that of two servers with the same id, such as on machines of one name, only one leads.
func TestServersOfOneName(t *testing.T) {
	client := fake.NewClientset().CoordinationV1()
	first, second := newLock(client, "apiserver-x"), newLock(client, "apiserver-x")
	now := metav1.Now()
	record := resourcelock.LeaderElectionRecord{HolderIdentity: first.Identity(), LeaseDurationSeconds: 6, AcquireTime: now, RenewTime: now}
	harness.Must(t, first.Create(t.Context(), record))
	held, _, err := second.Get(t.Context())
	if err != nil || held.HolderIdentity == "" || held.HolderIdentity == second.Identity() {
		t.Errorf("the second server takes the Lease of %q for its own, %q: %v", held.HolderIdentity, second.Identity(), err)
	}
}

// fakeLock is a Lease. If it hangs, it does so once it has been acquired.
type fakeLock struct {
	hangs bool

	mu     sync.Mutex
	record *resourcelock.LeaderElectionRecord // nil before it is created
}

// take has another server take the Lease.
func (l *fakeLock) take(holder string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.record.HolderIdentity = holder
}

func (l *fakeLock) holder() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.record.HolderIdentity
}

func (l *fakeLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.record == nil {
		return nil, nil, apierrors.NewNotFound(coordinationv1.Resource("leases"), leaseName)
	}
	if err := l.wait(ctx); err != nil {
		return nil, nil, err
	}
	record := *l.record
	return &record, []byte(record.HolderIdentity + record.RenewTime.String()), nil
}

func (l *fakeLock) Create(_ context.Context, record resourcelock.LeaderElectionRecord) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.record = &record
	return nil
}

func (l *fakeLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if err := l.wait(ctx); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if holder := l.record.HolderIdentity; holder != "" && holder != l.Identity() {
		return apierrors.NewConflict(coordinationv1.Resource("leases"), leaseName, nil)
	}
	l.record = &record
	return nil
}

func (l *fakeLock) wait(ctx context.Context) error {
	if !l.hangs {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (l *fakeLock) RecordEvent(string) {}

func (l *fakeLock) Identity() string { return "this" }

func (l *fakeLock) Describe() string { return leaseName }

// TestFollowProgram follows the Lease of a kube-controller-manager whose clock differs from the server's.
func TestFollowProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		leases := client.CoordinationV1().Leases(metav1.NamespaceSystem)
		ctx, cancel := context.WithCancel(t.Context())
		holders := followProgram(ctx, Config{Selected: func(schema.GroupVersionResource, fields.Selector) informer.Source { return nil }}, client, managerProgram)
		expect := func(what, want string) {
			t.Helper()
			select {
			case got, ok := <-holders:
				if !ok || got != want {
					t.Fatalf("%s: got %q, want %q", what, got, want)
				}
			case <-time.After(time.Second / 2): // of the bubble's clock
				t.Fatalf("%s: got nothing, want %q", what, want)
			}
		}
		quiet := func(what string) {
			t.Helper()
			synctest.Wait()
			select {
			case got := <-holders:
				t.Fatalf("%s: got %q", what, got)
			default:
			}
		}
		lease := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: managerProgram, Namespace: metav1.NamespaceSystem},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("one"), LeaseDurationSeconds: ptr.To[int32](15)},
		}
		renewed := 0
		renew := func(holder string) {
			t.Helper()
			renewed++
			lease.Spec.HolderIdentity = ptr.To(holder)
			lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Unix(int64(renewed), 0)} // long ago
			if _, err := leases.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		expect("without a Lease", "")
		if _, err := leases.Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		expect("when it is taken", "one")
		for range 10 {
			time.Sleep(14 * time.Second)
			renew("one")
			quiet("while it is renewed")
		}
		renew("two")
		expect("when another takes it", "two")
		renew("")
		expect("when it is released", "")
		renew("two")
		expect("when it is taken again", "two")
		time.Sleep(14 * time.Second)
		quiet("before it expires")
		time.Sleep(2 * time.Second)
		expect("when it has expired", "")
		time.Sleep(time.Hour)
		quiet("long after")
		renew("three")
		expect("when it is taken after it expired", "three")
		harness.Must(t, leases.Delete(t.Context(), managerProgram, metav1.DeleteOptions{}))
		expect("when it is deleted", "")
		cancel()
		synctest.Wait()
		if _, ok := <-holders; ok {
			t.Fatal("the channel is open after the end")
		}
	})
}
