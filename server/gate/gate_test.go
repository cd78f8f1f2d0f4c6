package gate

import (
	"context"
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
)

// TestGate lets requests of several users begin while those of others go on.
func TestGate(t *testing.T) {
	const waiting = 2
	synctest.Test(t, func(t *testing.T) {
		g := New("undo", Limits{Anyones: 2, Reserved: 2, Each: 1, Waiting: waiting})
		enter := func(name string, everywhere bool) func() {
			t.Helper()
			leave, err := g.enter(t.Context(), name, everywhere)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return leave
		}
		refused := func(name string, everywhere bool) {
			t.Helper()
			if _, err := g.enter(t.Context(), name, everywhere); !apierrors.IsTooManyRequests(err) {
				t.Errorf("%s may begin: %v", name, err)
			} else if seconds, retries := apierrors.SuggestsClientDelay(err); !retries || seconds == 0 {
				t.Errorf("%s is not asked to try again: %v", name, err)
			}
		}
		editor := enter("editor", false)
		refused("editor", false) // has one
		other := enter("other", false)
		refused("third", false) // nobody else's slot is free
		first, second := enter("on-call", true), enter("administrator", true)
		refused("third administrator", true)

		// A second one begins when the first one ends, and further ones are refused at once.
		begun := make(chan func())
		for range waiting {
			go func() { begun <- enter("editor", false) }()
		}
		synctest.Wait()
		refused("editor", false)
		editor()
		(<-begun)()
		(<-begun)()
		other()
		first()
		second()
		if len(g.turns)+len(g.anyone)+len(g.reserved) != 0 {
			t.Errorf("when all are done, %d turns, %d and %d slots are taken", len(g.turns), len(g.anyone), len(g.reserved))
		}

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if leave, err := g.enter(ctx, "gone", false); err == nil {
			leave()
		}
		if len(g.turns)+len(g.anyone) != 0 {
			t.Error("a request that is gone keeps its turn")
		}
	})
	one := turnOf(&user.DefaultInfo{Name: "system:serviceaccount:shop:a"})
	if other := turnOf(&user.DefaultInfo{Name: "system:serviceaccount:shop:b"}); other != one || one == turnOf(&user.DefaultInfo{Name: "system:serviceaccount:mart:a"}) {
		t.Errorf("the service accounts of a namespace have the turns %q and %q", one, other)
	}
}
