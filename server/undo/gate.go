package undo

import (
	"context"
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

// Each undo can take much memory and many requests, so only some are planned or applied at once: one of each user, and some only of those
// who may undo in the whole cluster.
const (
	anyones, reserved = 2, 2
	// patience is how long an undo waits for others, and waiting how many of one user do.
	patience = 5 * time.Second
	waiting  = 2
)

// gate admits undos.
type gate struct {
	anyone, reserved chan struct{}

	mu    sync.Mutex
	turns map[string]*turn // of the users whose undos run or wait
}

// turn is that of one user.
type turn struct {
	running chan struct{}
	undos   int // that run or wait
}

func newGate() *gate {
	return &gate{anyone: make(chan struct{}, anyones), reserved: make(chan struct{}, reserved), turns: map[string]*turn{}}
}

// enter waits until an undo of a user may begin, and returns what is to be called at its end. If that takes too long, it returns an error
// that clients answer by trying again.
func (g *gate) enter(ctx context.Context, name string, everywhere bool) (leave func(), err error) {
	own, ok := g.join(name)
	if !ok {
		return nil, apierrors.NewTooManyRequests("other undos of yours are going on", 1)
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
		return nil, apierrors.NewTooManyRequests("another undo of yours is going on", 1)
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
		return nil, apierrors.NewTooManyRequests("undos of others are going on", 1)
	}
}

func (g *gate) join(name string) (*turn, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	own := g.turns[name]
	if own == nil {
		own = &turn{running: make(chan struct{}, 1)}
		g.turns[name] = own
	}
	if own.undos > waiting {
		return nil, false
	}
	own.undos++
	return own, true
}

func (g *gate) quit(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.turns[name].undos--; g.turns[name].undos == 0 {
		delete(g.turns, name)
	}
}

// admit lets the undo of a request enter.
func (g *gate) admit(ctx context.Context, log *changes.Log) (leave func(), err error) {
	caller, ok := request.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewUnauthorized("an undo is done as its user")
	}
	everywhere := request.NamespaceValue(ctx) == ""
	if !everywhere {
		decision, _, err := log.Authorizer.Authorize(ctx, authorizer.AttributesRecord{
			User: caller, Verb: "create", APIGroup: changes.GroupVersion.Group, APIVersion: changes.GroupVersion.Version, Resource: Resource, ResourceRequest: true,
		})
		everywhere = err == nil && decision == authorizer.DecisionAllow
	}
	return g.enter(ctx, turnOf(caller), everywhere)
}

// turnOf names whose turn an undo of a user takes. Who may make service accounts in a namespace has as many users, but one turn.
func turnOf(u user.Info) string {
	if namespace, _, err := serviceaccount.SplitUsername(u.GetName()); err == nil {
		return strings.TrimSuffix(serviceaccount.MakeUsername(namespace, ""), ":")
	}
	return u.GetName()
}
