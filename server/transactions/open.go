package transactions

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage"
)

// A transaction can also stay open, for clients that know nothing of transactions: requests with its name in a header join it (join.go), until
// it is committed, dropped, or its time is up. It is in the memory of one server, and is gone with it. Nothing is locked, so it holds up nobody;
// since its requests can't be repeated, a conflict at its commit is one for its user.

const (
	// mostOpen is how many are open at a server, mostOpenOfOne how many of one user. Each can take as much memory as the limits allow.
	mostOpen, mostOpenOfOne = 16, 4
	// idle is how long there may be no request.
	idle = time.Minute
	// usualWithin and longestWithin are how long one stays open.
	usualWithin, longestWithin = 10 * time.Minute, time.Hour
)

// open is an open transaction.
type open struct {
	*sqlstore.Transaction
	status Status
	until  time.Time
	ending *time.Timer
	// writing has one write at a time, as if they were operations.
	writing sync.Mutex

	running int // guarded by opened.mu
}

// opened are the open transactions of a server, by their names.
type opened struct {
	mu  sync.Mutex
	all map[string]*open
}

// stage does what a transaction with a stage asks for.
func (r *REST) stage(ctx context.Context, t *Transaction, namespace string, dryRun bool) error {
	spec := field.NewPath("spec")
	var invalid field.ErrorList
	if len(t.Spec.Operations) > 0 {
		invalid = append(invalid, field.Forbidden(spec.Child("operations"), "requests make the operations of an open transaction"))
	}
	if dryRun {
		invalid = append(invalid, field.Forbidden(spec.Child("stage"), "to try an open transaction, drop it"))
	}
	if len(t.Spec.Require) > 0 && t.Spec.Stage != Open {
		invalid = append(invalid, field.Forbidden(spec.Child("require"), "conditions are given when a transaction is opened"))
	}
	within, err := t.Spec.within()
	if err != nil {
		invalid = append(invalid, field.Invalid(spec.Child("openWithin"), t.Spec.OpenWithin, err.Error()))
	}
	if invalid = append(invalid, t.Spec.confirmation()...); t.Spec.ConfirmWithin != "" && t.Spec.Stage != Open {
		invalid = append(invalid, field.Forbidden(spec.Child("confirmWithin"), "it is given when a transaction is opened"))
	}
	if len(invalid) > 0 {
		return apierrors.NewInvalid(kind, t.Name, invalid)
	}
	switch t.Spec.Stage {
	case Open:
		return r.open(ctx, t, namespace, within)
	case Commit, Drop:
		return r.close(ctx, t)
	}
	return apierrors.NewInvalid(kind, t.Name, field.ErrorList{field.NotSupported(spec.Child("stage"), t.Spec.Stage, []Stage{Open, Commit, Drop})})
}

// within returns how long a transaction stays open.
func (s *Spec) within() (time.Duration, error) {
	if s.OpenWithin == "" {
		return usualWithin, nil
	}
	within, err := time.ParseDuration(s.OpenWithin)
	if err == nil && (within < time.Second || within > longestWithin) {
		err = fmt.Errorf("want a duration from 1s to %s", longestWithin)
	}
	return within, err
}

// open opens a transaction.
func (r *REST) open(ctx context.Context, t *Transaction, namespace string, within time.Duration) error {
	gathering, err := r.Store.Begin(ctx, t.Name, r.Options.limits())
	if err != nil {
		return apistorage.ClientError(err)
	}
	joined := sqlstore.WithTransaction(ctx, gathering)
	transport, auditID, err := r.transport(ctx)
	gathering.AuditID = auditID
	if err == nil {
		err = t.Spec.mustBeConfirmed(gathering)
	}
	if err == nil {
		err = r.require(joined, transport, t.Spec.Require, namespace)
	}
	until := time.Now().Add(within)
	t.Status = Status{AuditID: auditID, OpenUntil: inSeconds(until)}
	if caller, ok := request.UserFrom(ctx); ok {
		t.Status.User = caller.GetName()
	}
	if err == nil {
		err = r.opened.add(&open{Transaction: gathering, status: t.Status, until: until})
	}
	if err != nil {
		gathering.End()
	}
	return err
}

// add adds an open transaction, unless there are too many.
func (o *opened) add(added *open) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all[added.Name()] != nil {
		return apierrors.NewAlreadyExists(resource, added.Name())
	}
	own := 0
	for _, other := range o.all {
		if other.status.User == added.status.User {
			own++
		}
	}
	if len(o.all) >= mostOpen || own >= mostOpenOfOne {
		return apierrors.NewTooManyRequests(fmt.Sprintf("too many transactions are open: %d, of which %d are yours", len(o.all), own), 10)
	}
	if o.all == nil {
		o.all = map[string]*open{}
	}
	o.all[added.Name()] = added
	added.ending = time.AfterFunc(min(idle, time.Until(added.until)), func() { o.expire(added) })
	return nil
}

// expire ends a transaction that has got no request for too long, or is open for too long.
func (o *opened) expire(old *open) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all[old.Name()] != old {
		return
	}
	if left := time.Until(old.until); left > 0 && old.running > 0 {
		old.ending.Reset(min(idle, left))
		return
	}
	delete(o.all, old.Name())
	go old.End() // which can send requests
}

// of returns an open transaction of a user, and what is to be called when it is not used any more.
func (o *opened) of(name, user string) (found *open, done func(), err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	found = o.all[name]
	if found == nil || found.status.User != user {
		return nil, nil, gone(name)
	}
	found.running++
	found.ending.Reset(min(idle, time.Until(found.until)))
	return found, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		found.running--
		if o.all[name] == found {
			found.ending.Reset(min(idle, time.Until(found.until)))
		}
	}, nil
}

// take removes an open transaction of a user.
func (o *opened) take(name, user string) (*open, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	found := o.all[name]
	if found == nil || found.status.User != user {
		return nil, gone(name)
	}
	found.ending.Stop()
	delete(o.all, name)
	return found, nil
}

// gone is the error for a transaction that is not open.
func gone(name string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonGone,
		Details: &metav1.StatusDetails{Group: resource.Group, Kind: resource.Resource, Name: name},
		Message: fmt.Sprintf("transaction %s is not open here: it has ended, its time was up, or it was opened at another server or before a restart. Unless it was committed, nothing of it was written", name),
	}}
}

// close commits or drops an open transaction.
func (r *REST) close(ctx context.Context, t *Transaction) error {
	caller, ok := request.UserFrom(ctx)
	if !ok {
		return apierrors.NewUnauthorized("there is no user")
	}
	found, err := r.opened.take(t.Name, caller.GetName())
	if err != nil {
		return err
	}
	defer found.End()
	t.Status = found.status
	t.Status.OpenUntil = nil
	if t.Spec.Stage == Drop {
		return nil
	}
	found.writing.Lock()
	defer found.writing.Unlock()
	err = r.commit(sqlstore.WithTransaction(ctx, found.Transaction), t, found.Transaction)
	if !errors.Is(err, sqlstore.ErrConflict) {
		return err
	}
	if err := r.unused(ctx, t.Name); err != nil {
		return err
	}
	return apierrors.NewConflict(resource, t.Name, errors.New("others have changed its objects since it was opened: nothing was written; do all of it again"))
}
