package undo

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	clientrest "k8s.io/client-go/rest"

	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/sqlstore/history"
)

// Why an object is left as it is, among other reasons.
const (
	nothingToDo  = "nothing to do: it is as it was"
	changedSince = "others have changed the same fields since"
)

// mostTaken is how many objects a Taker takes back at once, with what followed from their deletion.
const mostTaken = 100000

// mostTogether is how much a plan may hold whose writes are committed together.
const mostTogether = 32 << 20

// IsTooLarge reports whether a span is too large to be taken back at once.
func IsTooLarge(err error) bool { return apierrors.HasStatusCause(err, causeTooLarge) }

// Span is a part of history, from its first revision to its last.
type Span struct{ First, Last int64 }

// Taker takes back parts of history as the server itself, with the rules of undos. Users' undos do not hold it up.
type Taker struct {
	log    *changes.Log
	config *clientrest.Config
	user   user.Info
	memory *budget
}

// NewTaker returns a Taker whose requests are those of config, which is that of the user.
func NewTaker(log *changes.Log, config *clientrest.Config, user user.Info) *Taker {
	return &Taker{log: log, config: config, user: user, memory: &budget{}}
}

// Taking is a plan that takes back a part of history.
type Taking struct {
	planner *planner
	steps   []Step
}

// Plan plans to take back everything that was written in span. Of the earlier spans, it takes back what was done to the same objects.
// All requests have the audit id. It returns an API error if that can't be planned. Close must be called.
func (t *Taker) Plan(ctx context.Context, auditID string, span Span, earlier []Span) (*Taking, error) {
	cluster, err := newCluster(t.config, auditID)
	if err != nil {
		return nil, err
	}
	p := &planner{past: newPast(t.log, t.user), cluster: cluster, account: &account{budget: t.memory}, most: mostTaken, spans: append([]Span{span}, earlier...)}
	steps, err := p.plan(ctx, &Spec{})
	if err != nil {
		p.account.release()
		return nil, err
	}
	return &Taking{p, steps}, nil
}

// Close releases what the plan holds.
func (t *Taking) Close() { t.planner.account.release() }

// Together reports whether the writes of the plan can be committed together.
func (t *Taking) Together() bool {
	return len(t.steps) <= history.MaxTransactionRows/2 && t.planner.account.held <= mostTogether && t.planner.apart(t.steps, len(t.steps)) == ""
}

// ApplyRules applies those steps of the plan that change what the server allows: they could forbid the others. It reports whether there are any;
// the rest must then be planned again.
func (t *Taking) ApplyRules(ctx context.Context) (applied bool, err error) {
	var rules []Step
	for _, s := range t.steps {
		if s.Action != Leave && (s.work.group == "admissionregistration.k8s.io" || s.work.group == "" && slices.Contains([]string{"resourcequotas", "limitranges"}, s.work.resource)) {
			rules = append(rules, s)
		}
	}
	if len(rules) == 0 || len(rules) == len(t.steps) {
		return false, nil
	}
	_, _, err = t.planner.run(ctx, rules)
	done := slices.ContainsFunc(rules, func(s Step) bool { return s.Result == Done })
	return done, err // if none is done, trying the rest says why
}

// Apply applies the plan and returns its steps with their results.
func (t *Taking) Apply(ctx context.Context) ([]Step, error) {
	_, _, err := t.planner.run(ctx, t.steps)
	return t.steps, err
}

// Left returns what of its object the step leaves that was to be taken back, "" for nothing.
func (s *Step) Left() (why string) {
	switch {
	case s.Action == Leave && s.Reason != nothingToDo:
		return s.Reason
	case s.Action != Leave && len(s.Conflicts) > 0:
		return changedSince
	}
	return ""
}

// Trouble returns why the step could not be done for now, "" if it was, or never can be.
func (s *Step) Trouble() (why string) {
	switch {
	case s.Result == Failed, s.Result == NotTried:
		return s.Message
	case s.Action == Leave && s.Reason == ending:
		return s.Reason
	}
	return ""
}

// inSpans selects everything in the spans of the planner: of the first, and of the others what is of the same objects.
func (p *planner) inSpans(ctx context.Context) error {
	begin, _, err := p.past.begin(ctx, 0)
	if err != nil {
		return err
	}
	s := p.selection
	var only func(*history.Change) bool
	for i, span := range p.spans {
		if i == 0 && span.First <= begin {
			return refuse("history does not reach back to revision %d any more", span.First-1)
		}
		if err := p.past.walk(ctx, history.Query{After: span.First - 1, Before: span.Last + 1}, only, s.add); err != nil {
			return err
		}
		only = func(c *history.Change) bool { return s.undone[keyOf(c)] != nil }
	}
	return nil
}
