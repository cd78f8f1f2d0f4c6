package transactions

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apiserver/pkg/authentication/user"
	clientrest "k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/sqube/sqube/server/undo"
	"github.com/sqube/sqube/sqlstore"
)

// A transaction that must be confirmed has two rows beside its objects, which are committed with them: its record, and one of
// sqlstore.Unconfirmed, which is there as long as something is to be done. At the deadline, a server plans an undo, whose writes are a
// transaction of their own. That commits the new state of the record, too, so that it is taken back once, whoever is killed when.

const (
	// retry is the shortest pause after a failure to take a transaction back, retryMost the longest.
	retry     = 5 * time.Second
	retryMost = 5 * time.Minute
	// inVain is how often all of it is tried together while others write the same objects.
	inVain = 3
	// most is how long it may take to take back one.
	most = 2 * time.Minute
	// health confirms what is healthy at its deadline.
	health = "health"
)

// takeBackLimits bound a transaction that takes back another, whose deletions may have had consequences.
var takeBackLimits = sqlstore.TransactionLimits{Objects: math.MaxInt, Bytes: 64 << 20}

// Taker takes back what was not confirmed.
type Taker struct {
	*REST
	Undo *undo.Taker
	// Server is a configuration for requests of the server itself.
	Server *clientrest.Config
	// ServerID is unique among the servers of the database.
	ServerID string
	Log      *slog.Logger

	state     atomic.Pointer[Waiting]
	conflicts map[string]int // how often one was tried in vain since others have changed the same objects, by its name
}

// State is what waits.
func (t *Taker) State() Waiting {
	if state := t.state.Load(); state != nil {
		return *state
	}
	return Waiting{}
}

// Waiting is what waits to be confirmed or taken back.
type Waiting struct {
	Waiting, Failing int
	Deadline         time.Time // the first one, zero if there is none
}

// note notes what waits, for State.
func (t *Taker) note(all []*waiting) {
	var w Waiting
	for _, one := range all {
		switch {
		case one.Left:
			continue
		case one.Tries > 0:
			w.Failing++
		}
		w.Waiting++
		if w.Deadline.IsZero() || one.Deadline.Before(w.Deadline) {
			w.Deadline = one.Deadline
		}
	}
	t.state.Store(&w)
}

// Run takes back what was not confirmed in time, until ctx ends. Each server of a database runs it; one at a time takes back.
func (t *Taker) Run(ctx context.Context) {
	ctx = sqlstore.WithAuthor(ctx, sqlstore.Author{User: user.APIServerUser, FieldManager: undo.Manager})
	t.conflicts = map[string]int{}
	for ctx.Err() == nil {
		changed := make(chan struct{})
		cancel := t.Store.OnNext(sqlstore.Unconfirmed, func() { close(changed) })
		next := t.round(ctx)
		var due <-chan time.Time
		if !next.IsZero() {
			due = time.After(time.Until(next))
		}
		select {
		case <-changed:
		case <-due:
		case <-ctx.Done():
		}
		cancel()
	}
}

// round takes back what is due, and returns when to look again, zero for at the next change.
func (t *Taker) round(ctx context.Context) (next time.Time) {
	all, err := t.waiting(ctx)
	if err != nil {
		t.Log.Error("reading which transactions must be confirmed failed; trying again", "error", err)
		return time.Now().Add(retry)
	}
	t.note(all)
	now := time.Now()
	due := slices.DeleteFunc(slices.Clone(all), func(w *waiting) bool { return w.Left || w.Due.After(now) })
	if len(due) > 0 {
		held, until, err := t.lead(ctx)
		if err != nil {
			t.Log.Error("taking turns to take back transactions failed; trying again", "error", err)
			return now.Add(time.Second)
		}
		if !held {
			return until
		}
		// The newest first: what an older one has written is then as it left it.
		w := slices.MaxFunc(due, func(a, b *waiting) int { return cmp.Compare(a.Order, b.Order) })
		t.takeBack(ctx, w, all)
		return time.Now()
	}
	for _, w := range all {
		if !w.Left && (next.IsZero() || w.Due.Before(next)) {
			next = w.Due
		}
	}
	return next
}

// waiting returns the rows of sqlstore.Unconfirmed.
func (r *REST) waiting(ctx context.Context) (all []*waiting, err error) {
	for q := (sqlstore.Query{Resource: sqlstore.Unconfirmed}); ; {
		page, err := r.Store.Page(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, found := range page.Records {
			q.After = found.Key
			if found.Key == leadKey {
				continue
			}
			w := &waiting{Name: found.Key, found: found, Order: found.Revision}
			if err := json.Unmarshal(found.Value, w); err != nil {
				klog.ErrorS(err, "It can't be read when a transaction must be confirmed; confirm it, or take it back with sqube undo", "transaction", found.Key)
				continue // the others are known
			}
			all = append(all, w)
		}
		if !page.More {
			return all, nil
		}
		q.Revision = page.Revision
	}
}

// takeBack takes a transaction back, or confirms it if it is healthy and that is enough. It notes a failure, to try again.
func (t *Taker) takeBack(ctx context.Context, w *waiting, all []*waiting) {
	within, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	defer t.keepLeading(within)()
	err := t.tryTakeBack(within, w, all)
	if errors.Is(err, sqlstore.ErrConflict) && within.Err() == nil { // it is tried again at once, on the new state
		t.conflicts[w.Name]++
		return
	}
	delete(t.conflicts, w.Name)
	if err == nil || ctx.Err() != nil {
		return
	}
	t.Log.Error("a transaction that was not confirmed could not be taken back; trying again", "transaction", w.Name, "error", err)
	if err := t.failed(ctx, w, err); err != nil && ctx.Err() == nil {
		t.Log.Error("noting that a transaction could not be taken back failed", "transaction", w.Name, "error", err)
		select {
		case <-time.After(retry):
		case <-ctx.Done():
		}
	}
}

// failed notes that a transaction could not be taken back, and when to try again.
func (t *Taker) failed(ctx context.Context, w *waiting, reason error) error {
	l, err := t.load(ctx, w.Name)
	if apierrors.IsNotFound(err) { // nothing is known of it any more
		_, err := t.Store.Write(ctx, w.remove())
		return err
	}
	if err == nil && l.Status.State != Confirmed {
		known := l.Status.Message
		if err = t.settle(ctx, l.failing(reason.Error())); err == nil && known != l.Status.Message {
			t.announce(w.Name, l.Status)
		}
	}
	return errors.Join(err, t.postpone(ctx, w)) // so that it does not hold up others
}

// failing sets the state of a transaction that could not be taken back.
func (l *loaded) failing(why string) *loaded {
	l.Status.State, l.Status.Settled, l.Status.Message = TakingBackFailed, nil, why
	return l
}

// postpone has the transaction taken back later.
func (t *Taker) postpone(ctx context.Context, w *waiting) error {
	w.later(time.Now().UTC())
	write, err := w.write()
	if err == nil {
		_, err = t.Store.Write(ctx, write)
	}
	return err
}

// later has the transaction taken back after a pause, which grows.
func (w *waiting) later(now time.Time) {
	w.Due, w.Tries = now.Add(min(retry<<min(w.Tries, 10), retryMost)), w.Tries+1
}

// tryTakeBack returns sqlstore.ErrConflict if something has changed meanwhile.
func (t *Taker) tryTakeBack(ctx context.Context, w *waiting, all []*waiting) error {
	l, err := t.load(ctx, w.Name)
	if err != nil {
		return err
	}
	if l.Status.State == Confirmed || l.Status.State == TakenBack {
		_, err := t.Store.Write(ctx, w.remove())
		return err
	}
	problem, healthy := "", false
	if l.Status.UnlessHealthy && l.Status.State == AwaitsConfirmation {
		if problem, err = t.unhealthy(ctx, l); err != nil {
			return err
		}
		healthy = problem == ""
	}
	if healthy {
		return t.confirmHealthy(ctx, w, l)
	}
	name := "takeback-" + rand.String(16)
	gathering, err := t.Store.Begin(ctx, name, takeBackLimits)
	if err != nil {
		return err
	}
	defer gathering.End()
	together := sqlstore.WithTransaction(ctx, gathering)
	earlier, err := t.earlier(ctx, w, all)
	if err != nil {
		return err
	}
	auditID := string(uuid.NewUUID())
	gathering.AuditID = auditID
	if t.conflicts[w.Name] >= inVain {
		together = ctx // step by step: nobody who writes all the time can prevent it
	}
	steps, err := t.undo(ctx, together, auditID, l.span(), earlier)
	if err != nil {
		return err
	}
	return t.commit(sqlstore.WithAuthor(sqlstore.WithTransaction(ctx, gathering), author(auditID)), gathering, w, l, steps, problem)
}

// undo takes back a span: with the context together if that is possible, otherwise step by step, and in halves if it is too large, the newer
// one first. It returns sqlstore.ErrConflict if it must be planned again.
func (t *Taker) undo(ctx, together context.Context, auditID string, span undo.Span, earlier []undo.Span) ([]undo.Step, error) {
	plan, err := t.Undo.Plan(together, auditID, span, earlier)
	if undo.IsTooLarge(err) && span.First < span.Last {
		middle := (span.First + span.Last) / 2
		newer, err := t.undo(ctx, ctx, auditID, undo.Span{First: middle + 1, Last: span.Last}, earlier)
		if err != nil {
			return nil, err
		}
		older, err := t.undo(ctx, ctx, auditID, undo.Span{First: span.First, Last: middle}, earlier)
		return append(newer, older...), err
	}
	if err != nil {
		return nil, err
	}
	defer plan.Close()
	if again, err := plan.ApplyRules(ctx); err != nil || again {
		return nil, cmp.Or(err, sqlstore.ErrConflict) // without what is done
	}
	if !plan.Together() {
		return plan.Apply(ctx)
	}
	return plan.Apply(together)
}

// confirmHealthy confirms a transaction for its health.
func (t *Taker) confirmHealthy(ctx context.Context, w *waiting, l *loaded) error {
	if err := l.confirm(health, time.Now()); err != nil {
		return err
	}
	if err := t.settle(ctx, l); err != nil {
		return err
	}
	t.announce(w.Name, l.Status)
	_, err := t.Store.Write(ctx, w.remove())
	return err
}

func author(auditID string) sqlstore.Author {
	return sqlstore.Author{User: user.APIServerUser, FieldManager: undo.Manager, AuditID: auditID}
}

// span returns where the rows of the transaction are.
func (l *loaded) span() undo.Span {
	return undo.Span{First: l.First + 1, Last: l.First + l.found.Rows()}
}

// earlier returns what was left of earlier transactions that were taken back.
func (t *Taker) earlier(ctx context.Context, w *waiting, all []*waiting) (spans []undo.Span, err error) {
	for _, other := range all {
		if !other.Left || other.Order > w.Order {
			continue
		}
		found, err := t.record(ctx, other.Name)
		if err != nil {
			return nil, err
		}
		if found == nil {
			continue
		}
		l, err := loadedFrom(other.Name, found)
		if err != nil {
			return nil, err
		}
		spans = append(spans, l.span())
	}
	return spans, nil
}

// commit commits the undo of a transaction together with its new state.
func (t *Taker) commit(ctx context.Context, gathering *sqlstore.Transaction, w *waiting, l *loaded, steps []undo.Step, problem string) error {
	now, known := time.Now().UTC(), l.Status.Message
	l.Status.settled(TakenBack, now)
	l.Status.Message, l.Status.TakenBackBy, l.Status.Left = cmp.Or(problem, "it was not confirmed"), gathering.Name(), nil
	var failures []string
	for i := range steps {
		s := &steps[i]
		if why := s.Trouble(); why != "" {
			failures = append(failures, fmt.Sprintf("%s %s: %s", s.Object.Kind, s.Object.Name, why))
		}
		if why := cmp.Or(s.Trouble(), s.Left()); why != "" {
			at := Target{s.Object.APIVersion, s.Object.Kind, s.Object.Namespace, s.Object.Name}
			l.Status.Left = append(l.Status.Left, Left{at, why})
		}
	}
	write := w.remove()
	var err error
	switch {
	case len(failures) > 0:
		l.failing(fmt.Sprintf("%d objects could not be taken back: %s", len(failures), strings.Join(failures[:min(3, len(failures))], "; ")))
		w.later(now)
		write, err = w.write()
	case len(l.Status.Left) > 0:
		w.Left = true
		write, err = w.write()
	}
	if err != nil {
		return err
	}
	if _, err := t.Store.Write(ctx, write); err != nil {
		return err
	}
	if err := t.settle(ctx, l); err != nil {
		return err
	}
	back := Status{User: user.APIServerUser, AuditID: sqlstore.AuthorFrom(ctx).AuditID, Time: inSeconds(now), Message: "it takes back " + l.name}
	_, err = gathering.Commit(ctx, now.Add(kept).UnixMilli(), func(writes []sqlstore.Gathered) ([]byte, error) {
		return t.describe(&back, writes)
	})
	if err == nil && known != l.Status.Message {
		t.announce(l.name, l.Status)
	}
	return err
}

// A server that takes back something holds a row, so that no other does so at the same time: the order matters. It holds it for a
// moment, which it extends. If it is killed, another goes on after that.

// leadKey is the key of the row. No transaction can have this name.
const leadKey = ".leader"

const (
	leads  = 6 * time.Second
	extend = 2 * time.Second
)

type leader struct {
	Server string    `json:"server"`
	Until  time.Time `json:"until"`
}

// lead reports whether this server may take back, or else until when another may.
func (t *Taker) lead(ctx context.Context) (held bool, until time.Time, err error) {
	now := time.Now().UTC()
	if t.Store.Alone() {
		return true, now, nil
	}
	found, _, err := t.Store.Get(ctx, sqlstore.Unconfirmed, leadKey)
	if err != nil {
		return false, now, err
	}
	if found != nil {
		var other leader
		// A clock that is ahead must not keep others from it for longer.
		if err := json.Unmarshal(found.Value, &other); err == nil && other.Server != t.ServerID && other.Until.After(now) && other.Until.Before(now.Add(2*leads)) {
			return false, other.Until, nil
		}
	}
	value, err := json.Marshal(leader{t.ServerID, now.Add(leads)})
	if err != nil {
		return false, now, err
	}
	_, err = t.Store.Write(ctx, sqlstore.Internal(sqlstore.Unconfirmed, leadKey, found, value))
	if errors.Is(err, sqlstore.ErrConflict) {
		return false, now.Add(time.Second), nil
	}
	return err == nil, now, err
}

// keepLeading extends the time of this server until stop is called.
func (t *Taker) keepLeading(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-time.After(extend):
				_, _, _ = t.lead(ctx) // if that fails, another may begin, and the commit of one of the two fails
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() { cancel(); <-ended }
}
