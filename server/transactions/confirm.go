package transactions

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage"
)

// ConfirmResource is the subresource that is created to confirm a transaction.
const ConfirmResource = Resource + "/confirm"

// The limits of confirmWithin.
const (
	shortestDeadline = time.Second
	longestDeadline  = 24 * time.Hour
)

// Within returns the time within which the transaction must be confirmed, 0 if it need not be.
func (s *Spec) Within() (time.Duration, error) {
	if s.ConfirmWithin == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(s.ConfirmWithin)
	if err == nil && (d < shortestDeadline || d > longestDeadline) {
		err = fmt.Errorf("want a duration from %v to %v", shortestDeadline, longestDeadline)
	}
	return d, err
}

// confirmation returns what is invalid of what a transaction says of being confirmed.
func (s *Spec) confirmation() (invalid field.ErrorList) {
	spec := field.NewPath("spec")
	if _, err := s.Within(); err != nil {
		invalid = append(invalid, field.Invalid(spec.Child("confirmWithin"), s.ConfirmWithin, err.Error()))
	}
	if s.UnlessHealthy && s.ConfirmWithin == "" {
		invalid = append(invalid, field.Required(spec.Child("confirmWithin"), "unlessHealthy needs it"))
	}
	return invalid
}

// mustBeConfirmed says how a transaction that was begun must be confirmed.
func (s *Spec) mustBeConfirmed(gathering *sqlstore.Transaction) error {
	within, err := s.Within()
	gathering.Confirmation = sqlstore.Confirmation{Within: within, UnlessHealthy: s.UnlessHealthy}
	return err
}

// await makes the transaction of ctx one that must be confirmed, as of its commit.
func (r *REST) await(ctx context.Context, t *Transaction, c sqlstore.Confirmation) error {
	deadline := inSeconds(time.Now().Add(c.Within + time.Second - 1)) // never early
	t.Status.State, t.Status.Deadline, t.Status.UnlessHealthy = AwaitsConfirmation, deadline, c.UnlessHealthy
	w, err := (&waiting{Name: t.Name, User: t.Status.User, Due: deadline.Time, Deadline: deadline.Time}).write()
	if err == nil {
		_, err = r.Store.Write(ctx, w)
	}
	return err
}

// waiting is a row of sqlstore.Unconfirmed: a transaction that is to be taken back, or of which something was left when it was.
type waiting struct {
	Name     string    `json:"-"`
	User     string    `json:"user"`
	Due      time.Time `json:"due"`
	Deadline time.Time `json:"deadline"`
	Order    int64     `json:"order,omitempty"` // the revision of its first version, which later ones have
	Tries    int       `json:"tries,omitempty"`
	// Left means that it was taken back, but for what a later transaction had changed: if that is taken back, this must be, too.
	Left bool `json:"left,omitempty"`

	found *sqlstore.Record
}

// write returns the write that stores w.
func (w *waiting) write() (*sqlstore.Write, error) {
	value, err := json.Marshal(w)
	write := sqlstore.Internal(sqlstore.Unconfirmed, w.Name, w.found, value)
	if w.Left {
		write.ExpiresAt = time.Now().Add(kept).UnixMilli()
	}
	return write, err
}

// remove returns the write that removes w.
func (w *waiting) remove() *sqlstore.Write {
	return &sqlstore.Write{
		Operation: "delete", Resource: sqlstore.Unconfirmed, Key: w.Name, Name: w.Name, Previous: w.found, Labels: w.found.Labels, Fields: w.found.Fields, Value: w.found.Value,
	}
}

// loaded is the record of a transaction.
type loaded struct {
	record
	name  string
	found *sqlstore.Record
}

// load reads the record of a transaction. If there is none, it returns the API's error.
func (r *REST) load(ctx context.Context, name string) (*loaded, error) {
	found, err := r.record(ctx, name)
	if err != nil {
		return nil, err
	}
	if found == nil {
		return nil, apierrors.NewNotFound(resource, name)
	}
	return loadedFrom(name, found)
}

func loadedFrom(name string, found *sqlstore.Record) (*loaded, error) {
	l := &loaded{name: name, found: found}
	if err := json.Unmarshal(found.Value, &l.record); err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("the record of the transaction %s: %w", name, err))
	}
	if l.First == 0 {
		l.First = found.Revision
	}
	return l, nil
}

// transaction returns the transaction as the API shows it.
func (l *loaded) transaction() (*Transaction, error) {
	t := &Transaction{Status: l.Status}
	t.Name, t.UID, t.CreationTimestamp = l.name, types.UID(l.Status.AuditID), *l.Status.Time
	t.ResourceVersion = strconv.FormatInt(l.found.Revision, 10)
	return t, t.Status.committed(l.First, l.First+l.found.Rows(), l.Rows)
}

// settle writes the record with a new state. It returns sqlstore.ErrConflict if the record has changed since it was loaded.
func (r *REST) settle(ctx context.Context, l *loaded) error {
	var expires int64
	if l.Status.State != TakingBackFailed {
		expires = time.Now().Add(kept).UnixMilli()
	}
	value, err := json.Marshal(l.record)
	if err != nil {
		return err
	}
	_, err = r.Store.Write(ctx, &sqlstore.Write{
		Operation: "update", Resource: sqlstore.Transactions, Key: l.name, Name: l.name, Previous: l.found,
		ExpiresAt: expires, Labels: l.found.Labels, Fields: l.found.Fields, Value: value,
	})
	return err
}

// concerns reports whether the user of ctx may know of a transaction: who made it may, and, of one that
// must be confirmed, who may confirm those of others.
func (r *REST) concerns(ctx context.Context, l *loaded) (bool, error) {
	caller, ok := request.UserFrom(ctx)
	if !ok {
		return false, nil
	}
	if caller.GetName() == l.Status.User {
		return true, nil
	}
	if l.Status.State == "" {
		return false, nil
	}
	return r.confirmsOthers(ctx)
}

// confirmsOthers reports whether the user of ctx may confirm the transactions of others.
func (r *REST) confirmsOthers(ctx context.Context) (bool, error) {
	caller, _ := request.UserFrom(ctx)
	decision, _, err := r.Authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: caller, Verb: "update", APIGroup: changes.GroupVersion.Group, APIVersion: changes.GroupVersion.Version,
		Resource: Resource, Subresource: "confirm", ResourceRequest: true,
	})
	return decision == authorizer.DecisionAllow, err
}

// Confirm serves the subresource confirm, which is created to confirm a transaction.
type Confirm struct{ rest *REST }

// NewConfirm returns the subresource.
func NewConfirm(r *REST) *Confirm { return &Confirm{r} }

// New implements rest.Storage. What is sent does not matter.
func (*Confirm) New() runtime.Object { return &Transaction{} }

// Destroy implements rest.Storage.
func (*Confirm) Destroy() {}

// Create implements rest.NamedCreater. Who has made a transaction may confirm it, and who may update transactions/confirm.
func (c *Confirm) Create(ctx context.Context, name string, _ runtime.Object, _ rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	r := c.rest
	for range attempts {
		l, err := r.load(ctx, name)
		if err != nil {
			return nil, err
		}
		if allowed, err := r.concerns(ctx, l); err != nil || !allowed {
			return nil, cmp.Or(err, error(apierrors.NewNotFound(resource, name)))
		}
		if l.Status.State == Confirmed {
			return l.transaction()
		}
		if err := l.confirm(sqlstore.AuthorFrom(ctx).User, time.Now()); err != nil {
			return nil, err
		}
		if len(options.DryRun) > 0 {
			return l.transaction()
		}
		switch err = r.settle(ctx, l); {
		case err == nil:
			r.forget(ctx, name)
			r.announce(name, l.Status)
			return l.transaction()
		case !errors.Is(err, sqlstore.ErrConflict):
			return nil, apistorage.ClientError(err)
		}
	}
	return nil, apierrors.NewConflict(resource, name, errors.New("others confirm it, or it is being taken back: look at its state"))
}

// confirm sets the state of a transaction that a user, or health, has confirmed.
func (l *loaded) confirm(by string, now time.Time) error {
	switch {
	case l.Status.State == "":
		return apierrors.NewConflict(resource, l.name, errors.New("it has no deadline: it need not be confirmed"))
	case l.Status.State == TakenBack:
		return apierrors.NewConflict(resource, l.name, fmt.Errorf("it was taken back at %s", l.Status.Settled.UTC().Format(time.RFC3339)))
	case l.Status.State == AwaitsConfirmation && by != health && now.After(l.Status.Deadline.Time):
		return apierrors.NewConflict(resource, l.name, errors.New("its deadline has passed: it is being taken back"))
	}
	l.Status.settled(Confirmed, now)
	l.Status.ConfirmedBy = by
	return nil
}

// settled sets a state in which nothing is left to do.
func (s *Status) settled(state State, now time.Time) {
	s.State, s.Settled, s.Message = state, inSeconds(now), ""
}

// forget removes the row of sqlstore.Unconfirmed of a transaction that is settled. If that fails, it is done at the deadline.
func (r *REST) forget(ctx context.Context, name string) {
	if found, _, err := r.Store.Get(ctx, sqlstore.Unconfirmed, name); err == nil && found != nil {
		_, _ = r.Store.Write(ctx, (&waiting{Name: name, found: found}).remove())
	}
}
