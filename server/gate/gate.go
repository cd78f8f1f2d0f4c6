// Package gate bounds how many requests of a kind run at once, when each can take much memory and many further requests. Everybody gets a
// turn: a user can't take all slots, and some are kept for those who may do it in the whole cluster.
package gate

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sqube/sqube/server/changes"
)

// patience is how long a request waits for others.
const patience = 5 * time.Second

// Limits are how many may run at once.
type Limits struct {
	Anyones  int // of anybody
	Reserved int // further ones, of those who may do it in the whole cluster
	Each     int // of one user
	Waiting  int // further requests of one user, which wait
}

// Gate admits requests. Make it with [New].
type Gate struct {
	what             string
	limits           Limits
	anyone, reserved chan struct{}

	mu    sync.Mutex
	turns map[string]*turn // of the users whose requests run or wait
}

// turn is that of one user.
type turn struct {
	running  chan struct{}
	requests int // that run or wait
}

// New returns a gate. Its errors say what it admits, such as "undo".
func New(what string, l Limits) *Gate {
	return &Gate{what: what, limits: l, anyone: make(chan struct{}, l.Anyones), reserved: make(chan struct{}, l.Reserved), turns: map[string]*turn{}}
}

// enter waits until a request of a user may begin, and returns what is to be called at its end. If that takes too long, it returns an error
// that clients answer by trying again.
func (g *Gate) enter(ctx context.Context, name string, everywhere bool) (leave func(), err error) {
	own, ok := g.join(name)
	if !ok {
		return nil, g.busy("other %ss of yours are going on")
	}
	defer func() {
		if err != nil {
			g.quit(name)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case own.running <- struct{}{}:
	case <-ctx.Done():
		return nil, g.busy("other %ss of yours are going on")
	}
	var slots chan struct{} // nil, which never has room
	if everywhere {
		slots = g.reserved
	}
	done := func(slots chan struct{}) func() {
		return func() {
			<-slots
			<-own.running
			g.quit(name)
		}
	}
	select {
	case slots <- struct{}{}:
		return done(slots), nil
	case g.anyone <- struct{}{}:
		return done(g.anyone), nil
	case <-ctx.Done():
		<-own.running
		return nil, g.busy("%ss of others are going on")
	}
}

func (g *Gate) join(name string) (*turn, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	own := g.turns[name]
	if own == nil {
		own = &turn{running: make(chan struct{}, g.limits.Each)}
		g.turns[name] = own
	}
	if own.requests >= g.limits.Each+g.limits.Waiting {
		return nil, false
	}
	own.requests++
	return own, true
}

func (g *Gate) quit(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.turns[name].requests--; g.turns[name].requests == 0 {
		delete(g.turns, name)
	}
}

func (g *Gate) busy(format string) error {
	return apierrors.NewTooManyRequests(fmt.Sprintf(format, g.what), 1)
}

// Admit lets the request that creates a resource of group history.sqube.io enter, and returns what is to be called at its end.
func (g *Gate) Admit(ctx context.Context, rights authorizer.Authorizer, resource string) (leave func(), err error) {
	caller, ok := request.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewUnauthorized("there is no user")
	}
	everywhere := request.NamespaceValue(ctx) == ""
	if !everywhere {
		decision, _, err := rights.Authorize(ctx, authorizer.AttributesRecord{
			User: caller, Verb: "create", APIGroup: changes.GroupVersion.Group, APIVersion: changes.GroupVersion.Version, Resource: resource, ResourceRequest: true,
		})
		everywhere = err == nil && decision == authorizer.DecisionAllow
	}
	return g.enter(ctx, turnOf(caller), everywhere)
}

// turnOf names whose turn a request of a user takes. Who may make service accounts in a namespace has as many users, but one turn.
func turnOf(u user.Info) string {
	if namespace, _, err := serviceaccount.SplitUsername(u.GetName()); err == nil {
		return strings.TrimSuffix(serviceaccount.MakeUsername(namespace, ""), ":")
	}
	return u.GetName()
}
