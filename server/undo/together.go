package undo

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sqube/sqube/sqlstore"
)

// together reports whether what is written with ctx is gathered, to be committed all or not at all.
func together(ctx context.Context) bool { return sqlstore.TransactionFrom(ctx) != nil }

// errFailed is returned for a plan of which a step has failed.
var errFailed = errors.New("a step has failed")

// carryOut applies the plan of a status and completes that. It does so in one transaction, unless that has no room for the plan, or what can be
// applied is asked for.
func (p *planner) carryOut(ctx context.Context, c *Config, status *Status) (err error) {
	if !p.spec.Partial {
		why := p.apart(status.Plan, c.MostTogether)
		if why == "" {
			err = p.whole(ctx, c, status)
			if !apierrors.IsRequestEntityTooLargeError(err) {
				return err
			}
			why = "it is too large for one transaction"
		}
		status.Notes = append(status.Notes, "applied step by step: "+why)
	}
	status.Complete, status.Applied, err = p.run(ctx, status.Plan)
	return err
}

// apart returns why the steps of a plan can't be one transaction, "" if they can.
func (p *planner) apart(steps []Step, most int) string {
	writes := 0
	for i := range steps {
		if steps[i].Action == Leave {
			continue
		}
		writes++
		k := steps[i].work.key
		if steps[i].Action == Create && p.defined[k.full()] {
			return fmt.Sprintf("objects of %s can be created only after its definition was established", k.full())
		}
	}
	if writes > most {
		return fmt.Sprintf("it has more than the %d objects that a transaction can have", most)
	}
	return ""
}

// whole applies the plan of a status in one transaction and completes that. If a step fails, nothing is changed.
func (p *planner) whole(ctx context.Context, c *Config, status *Status) error {
	var tried []Step
	name, err := c.Together(ctx, "undo-", func(ctx context.Context) error {
		tried = slices.Clone(status.Plan)
		for i := range tried {
			tried[i].Warnings = slices.Clip(tried[i].Warnings)
		}
		complete, _, err := p.run(ctx, tried)
		if err != nil || complete {
			return err
		}
		return failure(tried)
	})
	switch {
	case errors.Is(err, errFailed):
		for i := range tried {
			if s := &tried[i]; s.Result == Done {
				s.Result, s.Message = NotTried, ""
			}
		}
		status.Plan = tried
		status.Notes = append(status.Notes, "nothing has been changed, since not everything could be")
		return nil
	case err != nil:
		return err
	}
	status.Plan, status.Complete = tried, true
	if slices.ContainsFunc(tried, func(s Step) bool { return s.Result == Done }) {
		status.Applied = &ChangeSelector{Transaction: name}
	}
	return nil
}

// failure returns the error of a plan of which steps have failed: errFailed, unless it is that the transaction has no room.
func failure(steps []Step) error {
	for i := range steps {
		if err := steps[i].failure; apierrors.IsRequestEntityTooLargeError(err) {
			return err
		}
	}
	return errFailed
}
