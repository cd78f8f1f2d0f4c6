package controllers

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// TestLostLease checks that a leader whose database no longer answers stops its controllers before another server may start
// them.
func TestLostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := lead(t.Context(), Config{}, &fakeLock{hangs: true}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took >= leaseDuration {
			t.Errorf("the controllers stopped after %s, want less than %s", took, leaseDuration)
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
			go func() { ended <- lead(ctx, Config{}, lock) }()
			synctest.Wait()
			want := ""
			if taken {
				want = "another"
				lock.record.HolderIdentity = want
			}
			cancel()
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			if got := lock.record.HolderIdentity; got != want {
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
	if err := first.Create(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	held, _, err := second.Get(t.Context())
	if err != nil || held.HolderIdentity == "" || held.HolderIdentity == second.Identity() {
		t.Errorf("the second server takes the Lease of %q for its own, %q: %v", held.HolderIdentity, second.Identity(), err)
	}
}

// fakeLock is a Lease. If it hangs, it does so once it has been acquired.
type fakeLock struct {
	hangs  bool
	record *resourcelock.LeaderElectionRecord // nil before it is created
}

func (l *fakeLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
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
	l.record = &record
	return nil
}

func (l *fakeLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if err := l.wait(ctx); err != nil {
		return err
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
