package undo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage"
	"github.com/sqube/sqube/sqlstore/history"
)

const (
	// reserve is how long before the request's time is up the last step may begin, so that the answer says how far the undo came.
	reserve = 5 * time.Second
	// answering is what a step that has been begun leaves of it.
	answering = 2 * time.Second
	// settling is how long to find out whether an interrupted step was done after all.
	settling = time.Second
	// established limits the waiting for a definition whose objects come next.
	established = 20 * time.Second
	// attempts is how often a step is planned anew because its object has changed since.
	attempts = 3
)

// run applies a plan, step by step, and sets their results. It goes on after a step that fails, but for what needs it, and ends before
// the request's time is up. The same undo then goes on where it stopped. It reports whether all steps are done, and between which
// revisions its writes are.
func (p *planner) run(ctx context.Context, steps []Step) (complete bool, applied *ChangeSelector, err error) {
	at, err := p.past.log.Store.Position(ctx)
	if err != nil {
		return false, nil, apistorage.ClientError(err)
	}
	p.began, complete = at.Revision, true
	working, cancel := inTime(ctx)
	defer cancel()
	var failed []*Step
	for i := range steps {
		step := &steps[i]
		if step.Action == Leave {
			continue
		}
		if deadline, limited := ctx.Deadline(); ctx.Err() != nil || limited && time.Until(deadline) < reserve {
			step.Message = "the request's time was up"
		} else {
			step.Message = needed(step, failed)
		}
		if step.Message != "" {
			step.Result, complete = NotTried, false
			failed = append(failed, step)
			continue
		}
		revision, err := p.apply(working, step)
		if err != nil && working.Err() != nil && !together(ctx) {
			revision, err = p.interrupted(ctx, step)
		}
		if err != nil {
			step.failure, step.Result, step.Message, complete = err, Failed, strings.TrimSpace(step.Message+" "+err.Error()), false
			failed = append(failed, step)
			continue
		}
		step.Result = Done
		applied = applied.with(revision)
	}
	if applied != nil {
		author := sqlstore.AuthorFrom(ctx)
		applied.User, applied.ImpersonatedUser, applied.AuditID = author.User, author.ImpersonatedUser, p.cluster.auditID
	}
	return complete, applied, nil
}

// inTime returns a context that ends while there is time left for an answer.
func inTime(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, limited := ctx.Deadline()
	if !limited {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline.Add(-answering))
}

// interrupted returns the revision of the write of a step that the server has not answered in time, or an error if it was not done.
func (p *planner) interrupted(ctx context.Context, step *Step) (revision int64, err error) {
	_ = wait.PollUntilContextTimeout(ctx, settling/10, settling, true, func(ctx context.Context) (bool, error) {
		revision, err = p.written(ctx, step.work)
		return err == nil && revision != 0, nil
	})
	if err == nil && revision == 0 {
		err = errors.New("it took too long, and was given up")
	}
	return revision, err
}

// needed returns why a step can't be tried after those that have failed, "" if it can.
func needed(step *Step, failed []*Step) string {
	if step.Action == Delete && len(failed) > 0 {
		return "nothing is deleted after a failure"
	}
	for _, before := range failed {
		w := before.work
		owns := slices.ContainsFunc(step.work.owners, func(o metav1.OwnerReference) bool { return string(o.UID) == w.uid })
		if before.Action == Create && (owns || w.holds(step.work.key)) {
			return fmt.Sprintf("it needs %s", w.key)
		}
	}
	return ""
}

// with adds a revision to those that are selected.
func (c *ChangeSelector) with(revision int64) *ChangeSelector {
	switch {
	case revision == 0:
		return c
	case c == nil:
		return &ChangeSelector{AfterRevision: revision - 1, BeforeRevision: revision + 1}
	}
	return &ChangeSelector{AfterRevision: min(c.AfterRevision, revision-1), BeforeRevision: max(c.BeforeRevision, revision+1)}
}

// apply applies a step and returns the revision of the write. If the object has changed since the plan, it plans the step anew, and
// fails if that would do anything else or overwrite more. A Taker then writes the last plan, whatever the version is.
func (p *planner) apply(ctx context.Context, step *Step) (revision int64, err error) {
	for range attempts {
		if revision, err = p.write(ctx, step); !apierrors.IsConflict(err) || step.Action == Create {
			return revision, err
		}
		subjects, failed := p.selection.load(ctx, step.work.key)
		if failed != nil {
			return 0, err
		}
		subjects[step.work.key].close()
		anew, failed := p.step(ctx, subjects[step.work.key])
		if failed != nil || anew == nil || anew.Action != step.Action || len(anew.Conflicts) > len(step.Conflicts) {
			return 0, err
		}
		step.work, step.Diff = anew.work, anew.Diff
	}
	if p.spans == nil {
		return 0, err
	}
	step.work.live.SetResourceVersion("") // nobody who writes it all the time can keep the server from taking back the fields of the plan
	return p.write(ctx, step)
}

func (p *planner) write(ctx context.Context, step *Step) (int64, error) {
	w := step.work
	version, err := schema.ParseGroupVersion(step.Object.APIVersion)
	if err != nil {
		return 0, err
	}
	resource := version.WithResource(w.resource)
	switch step.Action {
	case Create:
		made, err := p.create(ctx, step, resource)
		if err != nil {
			return 0, err
		}
		return p.wrote(ctx, step, resource, made), nil
	case Delete:
		again := []Step{{Action: Delete, work: w}} // what it has may be new
		if err := p.spare(ctx, again); err != nil {
			return 0, err
		}
		if again[0].Action == Leave {
			return 0, errors.New(again[0].Reason)
		}
		if err := p.cluster.delete(ctx, resource, w.live); err != nil && !apierrors.IsNotFound(err) {
			return 0, err
		}
		if together(ctx) {
			return 0, nil // it is not in history yet
		}
		revision, _ := p.written(ctx, w) // it is done, whether it is known or not
		return revision, nil
	default:
		now, err := p.cluster.patch(ctx, resource, w.live, w.patch)
		if err != nil {
			return 0, err
		}
		return p.wrote(ctx, step, resource, now), nil
	}
}

// wrote completes a step that has written an object, and returns the revision.
func (p *planner) wrote(ctx context.Context, step *Step, resource schema.GroupVersionResource, written *unstructured.Unstructured) int64 {
	if err := p.giveBack(ctx, resource, step.work, written); err != nil {
		step.Warnings = append(step.Warnings, fmt.Sprintf("its fields remain with the field manager %s: %v", Manager, err))
	}
	return revisionOf(written)
}

// written returns the revision of the last write to an object by this undo, 0 if history does not have it (yet).
func (p *planner) written(ctx context.Context, w *work) (revision int64, err error) {
	q := w.query()
	q.After = p.began
	only := func(c *history.Change) bool { return c.FieldManager == Manager }
	err = p.past.walk(ctx, q, only, func(c *change) error {
		e, err := c.read(ctx)
		if err != nil {
			return err
		}
		if _, auditID := sqlstore.SplitAuditID(e.AuditID); auditID != p.cluster.auditID {
			return nil
		}
		revision = c.ID
		return errEnough
	})
	return revision, err
}

// create creates the object of a step, and returns what it has become.
func (p *planner) create(ctx context.Context, step *Step, resource schema.GroupVersionResource) (made *unstructured.Unstructured, err error) {
	w := step.work
	fields, err := decode(w.object)
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{Object: fields}
	references := object.GetOwnerReferences()
	for i, owner := range references {
		if uid := p.uids[string(owner.UID)]; uid != "" {
			references[i].UID = types.UID(uid)
		}
	}
	object.SetOwnerReferences(slices.Clip(references))
	made, err = p.cluster.create(ctx, resource, object)
	if apierrors.IsInvalid(err) && w.group == "" && w.resource == "services" {
		if dropped := withoutAllocations(object); len(dropped) > 0 {
			if made, err = p.cluster.create(ctx, resource, object); err == nil {
				step.Message = fmt.Sprintf("without its former %s, which another has now", strings.Join(dropped, ", "))
			}
		}
	}
	if w.group != "" && apierrors.IsNotFound(err) && !together(ctx) { // the definition may have been created a moment ago
		err = p.retry(ctx, func() error { made, err = p.cluster.create(ctx, resource, object); return err })
	}
	if err != nil {
		return nil, err
	}
	p.uids[w.uid] = string(made.GetUID())
	if w.of(definitions) && !together(ctx) {
		err = p.retry(ctx, func() error {
			now, err := p.cluster.get(ctx, resource, "", w.name)
			if err == nil && !met(now, "Established") {
				err = apierrors.NewNotFound(resource.GroupResource(), w.name)
			}
			return err
		})
	}
	return made, err
}

// retry calls do until it finds what it looks for.
func (p *planner) retry(ctx context.Context, do func() error) (last error) {
	_ = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, established, true, func(context.Context) (bool, error) {
		last = do()
		return !apierrors.IsNotFound(last), nil
	})
	return last
}

// met reports whether one of these conditions of an object is true.
func met(o *unstructured.Unstructured, types ...any) bool {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		condition, ok := c.(map[string]any)
		return ok && slices.Contains(types, condition["type"]) && condition["status"] == string(metav1.ConditionTrue)
	})
}

func revisionOf(o *unstructured.Unstructured) int64 {
	revision, _ := strconv.ParseInt(o.GetResourceVersion(), 10, 64)
	return revision
}
