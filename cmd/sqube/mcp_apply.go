package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sqube/sqube/cmd/sqube/internal/agent"
	"github.com/sqube/sqube/cmd/sqube/internal/manifests"
	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/server/transaction"
)

const applyWords = "Apply to the cluster a change that was tried: exactly the same, in the namespaces that are allowed, while what it stands on is still as it was. A person is asked to confirm it. A trial can be applied once, within 15 minutes."

type applyInput struct {
	Trial string `json:"trial" jsonschema:"the trial that try has named"`
	changeInput
}

func (s *agentServer) applyTried(ctx context.Context, c *agentCall, in applyInput) (*reply, error) {
	change, err := c.change(&in.changeInput)
	if err != nil {
		return nil, err
	}
	if err := change.within(s.apply); err != nil {
		return nil, err
	}
	hash, err := change.hash()
	if err != nil {
		return nil, err
	}
	t, err := s.trials.Find(in.Trial, c.owner, hash)
	if err != nil {
		return nil, err
	}
	known, _ := t.State.(map[string]string)
	if _, err := c.unchanged(ctx, change, known); err != nil {
		return nil, err
	}
	if ask, err := s.confirmed(c, t, "Apply this to the cluster?"); ask != nil || err != nil {
		return ask, err
	}
	if !s.trials.Remove(t) {
		return nil, fmt.Errorf("%s was applied already", t.ID)
	}
	done, err := c.commit(ctx, change, known)
	if err != nil {
		return nil, err
	}
	return &reply{note: "Applied. " + done, data: change.words()}, nil
}

// unchanged returns the objects of a change, or an error if they are not as they were when it was tried.
func (c *agentCall) unchanged(ctx context.Context, change *agentChange, known map[string]string) (map[*target]*unstructured.Unstructured, error) {
	states, live, err := c.state(ctx, change)
	if err != nil {
		return nil, err
	}
	for _, key := range slices.Sorted(maps.Keys(states)) {
		if states[key] != known[key] {
			return nil, fmt.Errorf("%s has changed since the trial: nothing was written; try the change again", key)
		}
	}
	return live, nil
}

// confirmation is the name of the question that a person answers.
const confirmation = "confirmation"

// confirmed returns nil if a trial may be applied, or else what is to be asked.
func (s *agentServer) confirmed(c *agentCall, t *agent.Trial, question string) (*reply, error) {
	if s.noConfirmation {
		if !t.Sure {
			return nil, errors.New("without a person's confirmation, only what came to rest in its trial is applied, and this did not")
		}
		return nil, nil
	}
	if answered, ok := c.Params.InputResponses[confirmation].(*mcp.ElicitResult); ok {
		agreed, _ := answered.Content["apply"].(bool)
		switch {
		case !s.trials.Answered(t, c.Params.RequestState):
			return nil, errors.New("this confirmation is not the one that was asked for: nothing was written; call the tool again")
		case answered.Action != "accept" || !agreed:
			return nil, errors.New("the person did not confirm it: nothing was written")
		}
		return nil, nil
	}
	p := c.Session.InitializeParams()
	if p == nil || p.Capabilities == nil || p.Capabilities.Elicitation == nil || p.Capabilities.Elicitation.Form == nil && p.Capabilities.Elicitation.URL != nil {
		return nil, errors.New("this client can't ask a person to confirm (it lacks the capability elicitation), so nothing was written: a person can apply the change with sqube try --apply, or start the server with --no-confirmation")
	}
	message := fmt.Sprintf("%s Cluster: %s, as %s. In its trial, it %s\n\n%s", question, c.where, c.who(), agent.Visible(t.Verdict), agent.Visible(shortened(t.Change)))
	return &reply{secret: s.trials.Ask(t), ask: &mcp.ElicitParams{Message: message, RequestedSchema: map[string]any{
		"type": "object", "required": []string{"apply"},
		"properties": map[string]any{"apply": map[string]any{"type": "boolean", "title": "Apply it", "description": "Check it to have the change written to the cluster.", "default": false}},
	}}}, nil
}

// who names the user, as far as the configuration says it.
func (c *agentCall) who() string {
	switch {
	case c.owner != "":
		return c.owner
	case c.config.Impersonate.UserName != "":
		return c.config.Impersonate.UserName
	}
	return "the user of the kubeconfig"
}

// mostAsked is how many lines of a change a person is shown.
const mostAsked = 200

func shortened(text string) string {
	lines := strings.Split(text, "\n")
	if len(lines) > mostAsked {
		lines = append(lines[:mostAsked:mostAsked], fmt.Sprintf("… and %d more lines", len(lines)-mostAsked))
	}
	return strings.Join(lines, "\n")
}

// attemptsToApply is how often a change is sent if the objects' status keeps changing.
const attemptsToApply = 5

// commit writes a change if its objects are still as they were. It returns what was done, in words.
func (c *agentCall) commit(ctx context.Context, change *agentChange, known map[string]string) (done string, err error) {
	write := c.oneByOne
	if _, err := c.mapper.KindFor(changes.GroupVersion.WithResource("transactions")); err == nil {
		write = c.together
	} else if !meta.IsNoMatchError(err) {
		return "", terminal.OneLine(err)
	}
	for attempt := 1; ; attempt++ {
		live, err := c.unchanged(ctx, change, known)
		if err != nil {
			return "", err
		}
		done, again, err := write(ctx, change, live)
		if err == nil || !again || attempt == attemptsToApply {
			return done, terminal.OneLine(err)
		}
	}
}

// together writes a change as one transaction, on a server that has them. again is set if it can be repeated after an error.
func (c *agentCall) together(ctx context.Context, change *agentChange, live map[*target]*unstructured.Unstructured) (done string, again bool, err error) {
	client, err := transaction.NewClient(c.config, nil)
	if err != nil {
		return "", false, err
	}
	t := client.New("")
	t.FieldManager, t.FieldValidation = agentManager, validation
	namespaces := map[string]bool{}
	for _, target := range change.targets {
		namespaces[target.object.GetNamespace()] = true
		now := live[target]
		switch {
		case now == nil && change.delete:
			return "", false, fmt.Errorf("%s does not exist", manifests.Name(target.object))
		case now == nil:
			t.RequireAbsent(target.object)
		default:
			t.RequireVersion(now)
		}
		if change.delete {
			policy := metav1.DeletionPropagation(propagation)
			t.Delete(target.object, metav1.DeleteOptions{PropagationPolicy: &policy})
		} else {
			t.Apply(target.object, change.force)
		}
	}
	result, err := t.Commit(ctx)
	if _, _, known := transaction.OperationOf(err); apierrors.IsForbidden(err) && !known && len(namespaces) == 1 { // the right to it in the namespace suffices
		for t.Namespace = range namespaces {
			result, err = t.Commit(ctx)
		}
	}
	if err != nil {
		if unknown := unknownOutcome(err); unknown != nil {
			return "", false, unknown
		}
		return "", apierrors.IsConflict(err), fmt.Errorf("%w; nothing was written", err)
	}
	return fmt.Sprintf("It is transaction %s. To take it back: sqube undo --transaction %s", result.Name, result.Name), false, nil
}

// oneByOne writes a change to a server without transactions, after a dry run of all of it.
func (c *agentCall) oneByOne(ctx context.Context, change *agentChange, live map[*target]*unstructured.Unstructured) (done string, again bool, err error) {
	for _, dry := range []bool{true, false} {
		for i, target := range change.targets {
			err := c.write(ctx, change, target, live[target], dry)
			switch {
			case err == nil:
				continue
			case dry || i == 0:
				return "", apierrors.IsConflict(err), fmt.Errorf("%s: %w; nothing was written", manifests.Name(target.object), err)
			}
			return "", false, fmt.Errorf("%s: %w; only what comes before it in the change was written", manifests.Name(target.object), err)
		}
	}
	return "The cluster has no transactions: it was written object by object.", false, nil
}

// write writes an object that must be the given one, nil for none.
func (c *agentCall) write(ctx context.Context, change *agentChange, t *target, now *unstructured.Unstructured, dry bool) error {
	method, object := c.client.Patch(types.ApplyPatchType), t.object.DeepCopy()
	if change.delete {
		method = c.client.Delete()
	}
	r := at(method, t.mapping.Resource, object.GetNamespace()).Name(object.GetName()).Param("fieldManager", agentManager)
	if change.delete { // whose body counts, and no parameter
		options := map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
		if now != nil {
			options["preconditions"] = map[string]any{"uid": now.GetUID(), "resourceVersion": now.GetResourceVersion()}
		}
		if dry {
			options["dryRun"] = []string{metav1.DryRunAll}
		}
		body, err := json.Marshal(options)
		if err != nil {
			return err
		}
		return r.SetHeader("Content-Type", asJSON).Body(body).Do(ctx).Error()
	}
	if now != nil {
		object.SetResourceVersion(now.GetResourceVersion())
	}
	body, err := object.MarshalJSON()
	if err != nil {
		return err
	}
	if dry {
		r = r.Param("dryRun", metav1.DryRunAll)
	}
	if change.force {
		r = r.Param("force", "true")
	}
	return r.Param("fieldValidation", validation).Body(body).Do(ctx).Error()
}
