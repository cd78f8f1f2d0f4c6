package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/cmd/sqube/internal/agent"
	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/server/trial"
	"github.com/sqube/sqube/server/undo"
)

const (
	planWords = "Plan to take back changes, or to bring back an object as it was: what undo would write to which object, and what then happens, by a trial on a copy. Nothing is changed. The answer names the plan, which undo needs. It needs a sqube server."
	undoWords = "Undo what was planned, if the plan is still the same. A person is asked to confirm it. A plan can be carried out once, within 15 minutes."
)

type planInput struct {
	Namespace   string `json:"namespace,omitempty" jsonschema:"the namespace of the object, or of the changes; if unset, that of the context"`
	Resource    string `json:"resource,omitempty" jsonschema:"with name: bring back one object; its resource as for kubectl"`
	Name        string `json:"name,omitempty" jsonschema:"the name of that object"`
	To          string `json:"to,omitempty" jsonschema:"the moment to which the object goes back; if unset, it must have been deleted"`
	User        string `json:"user,omitempty" jsonschema:"take back what this user did"`
	Manager     string `json:"manager,omitempty" jsonschema:"take back what was done with this field manager"`
	Transaction string `json:"transaction,omitempty" jsonschema:"take back what this transaction did"`
	Since       string `json:"since,omitempty" jsonschema:"take back only what was done since then: a time, or how long ago"`
	Until       string `json:"until,omitempty" jsonschema:"take back only what was done before then: a time, or how long ago"`
}

// spec returns what is to be undone. Its changes end now: others that follow are not taken back with them.
func (in *planInput) spec(c *agentCall, now time.Time) (*undoOptions, *undo.Spec, error) {
	o := &undoOptions{cluster: *c.cluster, namespace: in.Namespace, to: in.To, since: in.Since, until: in.Until}
	o.changes.User, o.changes.FieldManager, o.changes.Transaction = in.User, in.Manager, in.Transaction
	args, err := arguments(in.Resource, in.Name)
	if err != nil {
		return nil, nil, err
	}
	if o.namespace == "" {
		if o.namespace, _, err = c.loader.Namespace(); err != nil {
			return nil, nil, err
		}
	}
	spec := &undo.Spec{}
	if args != nil {
		if spec.To, err = o.moment(now); err == nil {
			spec.Object, err = o.named(args)
		}
		return o, spec, err
	}
	if spec.Changes, err = o.selected(now); err == nil && spec.Changes.Until == nil {
		spec.Changes.Until = &metav1.Time{Time: now}
	}
	return o, spec, err
}

// plan asks for the plan of an undo, and returns its hash. It must be in the namespaces that are allowed.
func (s *agentServer) plan(ctx context.Context, o *undoOptions, spec *undo.Spec) (*undo.Undo, string, error) {
	sent := *spec
	sent.Operations = true
	planned, err := o.post(ctx, &undo.Undo{Spec: sent})
	if err != nil {
		return nil, "", terminal.OneLine(err)
	}
	for _, step := range planned.Status.Plan {
		if step.Action != undo.Leave && !slices.Contains(s.apply, step.Object.Namespace) {
			return nil, "", fmt.Errorf("the plan has %s: agents undo only what is in these namespaces: %s", headline(&step), strings.Join(s.apply, ", "))
		}
	}
	text, err := json.Marshal(planned.Status.Plan) // with what it writes
	sum := sha256.Sum256(text)
	return planned, hex.EncodeToString(sum[:]), err
}

// plannedUndo is what an undo stands on.
type plannedUndo struct {
	options *undoOptions
	spec    *undo.Spec
}

func (s *agentServer) planUndo(ctx context.Context, c *agentCall, in planInput) (*reply, error) {
	o, spec, err := in.spec(c, time.Now())
	if err != nil {
		return nil, err
	}
	planned, hash, err := s.plan(ctx, o, spec)
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	if err := printUndo(&text, "sqube undo", planned); err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(planned.Status.Plan, func(s undo.Step) bool { return s.Action != undo.Leave }) {
		return &reply{note: "There is nothing to undo.", data: text.String()}, nil
	}
	result, summary, note, err := s.tryPlan(ctx, c, planned)
	if err != nil {
		return nil, err
	}
	answer := &reply{data: text.String() + "\n" + summary}
	shown := &tried{Note: notesOfTrial, Result: result}
	if result != nil && result.Verdict == trial.RefusedChange {
		answer.note = "This is a plan: nothing was changed. In a trial it was refused, so it can't be carried out."
	} else {
		t := agent.Trial{Owner: c.owner, Hash: hash, Verdict: "could not be tried: " + note, Change: text.String(), State: &plannedUndo{o, spec}}
		if result != nil {
			t.Verdict, t.Sure = strings.TrimSpace(verdictOf(result)+"\n"+note), result.Verdict == trial.AtRest && note == ""
		}
		added := s.trials.Add(t)
		shown.Trial, shown.Expires = added.ID, added.Expires.UTC().Format(time.RFC3339)
		answer.note = fmt.Sprintf("This is a plan, with a trial of it on a copy: nothing was changed. %s To carry it out until %s, call undo with plan=%q.", note, shown.Expires, added.ID)
	}
	if result != nil {
		shown.bound()
		answer.structured = shown
	}
	return answer, nil
}

// tryPlan tries what a plan writes. Without a result, the note says why; with one, it says what was left out.
func (s *agentServer) tryPlan(ctx context.Context, c *agentCall, planned *undo.Undo) (result *trial.Result, summary, note string, err error) {
	operations, left := []any{}, 0
	var namespaces []string
	for _, step := range planned.Status.Plan {
		switch {
		case step.Operation != nil:
			operations = append(operations, step.Operation)
			if !slices.Contains(namespaces, step.Object.Namespace) {
				namespaces = append(namespaces, step.Object.Namespace)
			}
		case step.Action != undo.Leave:
			left++
		}
	}
	if left > 0 {
		note = fmt.Sprintf("%d of the steps are of objects that can have secret values, which are not tried.", left)
	}
	if len(operations) == 0 {
		return nil, "", note, nil
	}
	change, err := transactionOf(operations)
	if err != nil {
		return nil, "", "", err
	}
	result, summary, err = s.run(ctx, c, change, "the plan", namespaces, defaultSpan)
	return result, summary, note, err
}

type undoInput struct {
	Plan string `json:"plan" jsonschema:"the plan that plan_undo has named"`
}

func (s *agentServer) undoPlanned(ctx context.Context, c *agentCall, in undoInput) (*reply, error) {
	t, err := s.trials.Of(in.Plan, c.owner)
	if err != nil {
		return nil, err
	}
	known, ok := t.State.(*plannedUndo)
	if !ok {
		return nil, errors.New("this is no plan: ask plan_undo for one")
	}
	o := *known.options
	o.cluster = *c.cluster
	_, hash, err := s.plan(ctx, &o, known.spec)
	if err != nil {
		return nil, err
	}
	if hash != t.Hash {
		return nil, errors.New("the plan is not the same any more, since something has changed: nothing was written; plan it again")
	}
	if ask, err := s.confirmed(c, t, "Undo this in the cluster?"); ask != nil || err != nil {
		return ask, err
	}
	if !s.trials.Remove(t) {
		return nil, fmt.Errorf("%s was carried out already", t.ID)
	}
	spec := *known.spec
	spec.Apply = true
	done, err := o.post(ctx, &undo.Undo{Spec: spec})
	if err != nil {
		return nil, terminal.OneLine(err)
	}
	var text strings.Builder
	if err := errors.Join(printUndo(&text, "sqube undo", done), unfinished(done)); err != nil {
		return nil, err
	}
	return &reply{note: "Undone.", data: text.String()}, nil
}
