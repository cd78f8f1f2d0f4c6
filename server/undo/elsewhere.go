package undo

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage"
	"github.com/sqube/sqube/sqlstore/history"
)

// A mirror plans what takes changes back in the cluster that it mirrors, and its client applies it there, as its user:
//
//	mirror: plan ──► Step.Write ──► client: ApplyElsewhere ──► the cluster

// Write is what a step writes into the cluster that a mirror shows.
type Write struct {
	UID             string                `json:"uid,omitempty" doc:"The uid that an object had which is created again."`
	Object          *apiextensionsv1.JSON `json:"object,omitempty" doc:"The object that is created."`
	Patch           *apiextensionsv1.JSON `json:"patch,omitempty" doc:"The JSON merge patch that updates the object."`
	Managed         *apiextensionsv1.JSON `json:"managed,omitempty" doc:"The entries of managedFields of those who had the fields before."`
	LiveUID         string                `json:"liveUID,omitempty" doc:"The uid that the object must have."`
	ResourceVersion string                `json:"resourceVersion,omitempty" doc:"The resourceVersion in the cluster that the object must have."`
}

// addWrites adds to the steps of a plan what they write into the cluster that is mirrored.
func (p *planner) addWrites(ctx context.Context, steps []Step) error {
	for i := range steps {
		step := &steps[i]
		if step.Action == Leave {
			continue
		}
		w, write := step.work, &Write{UID: step.work.uid}
		if step.Action == Create && w.object != nil {
			write.Object = &apiextensionsv1.JSON{Raw: w.object}
		}
		if step.Action == Update && w.patch != nil {
			write.Patch = &apiextensionsv1.JSON{Raw: w.patch}
		}
		if len(w.managed) > 0 {
			managed, err := json.Marshal(w.managed)
			if err != nil {
				return err
			}
			write.Managed = &apiextensionsv1.JSON{Raw: managed}
		}
		if w.live != nil {
			there, err := p.sourceVersion(ctx, revisionOf(w.live))
			if err != nil {
				return err
			}
			write.LiveUID, write.ResourceVersion = string(w.live.GetUID()), there
		}
		step.Write = write
	}
	return nil
}

// sourceVersion returns the resourceVersion that a version of the mirror has in the cluster.
func (p *planner) sourceVersion(ctx context.Context, revision int64) (there string, err error) {
	err = p.past.log.Store.Changes(ctx, history.Query{After: revision - 1, Before: revision + 1}, func(c *history.Change) error {
		if err := c.Load(ctx); err != nil {
			return err
		}
		if version, _ := sqlstore.SplitMirroredID(c.AuditID); version != 0 {
			there = fmt.Sprint(version)
		}
		return nil
	})
	if err != nil {
		return "", apistorage.ClientError(err)
	}
	if there == "" {
		return "", apierrors.NewServiceUnavailable(fmt.Sprintf("revision %d of the mirror is none of the cluster: try again", revision))
	}
	return there, nil
}

// addGaps notes what the mirror has not seen of the objects of a plan, since the version before the first change that it takes back.
func (p *planner) addGaps(ctx context.Context, status *Status) error {
	first, q, resources := int64(0), history.Query{Resource: &sqlstore.Gaps}, map[string]bool{}
	for _, revisions := range p.selection.undone {
		for revision := range revisions {
			if first == 0 || revision < first {
				first = revision
			}
		}
	}
	if first == 0 {
		return nil
	}
	err := p.past.log.Store.Changes(ctx, history.Query{After: first - 1, Before: first + 1}, func(c *history.Change) error {
		q.After = c.Replaces
		return nil
	})
	if err != nil {
		return apistorage.ClientError(err)
	}
	for i := range status.Plan {
		if status.Plan[i].Action != Leave {
			resources[status.Plan[i].work.full()] = true
		}
	}
	err = p.past.log.Store.Changes(ctx, q, func(c *history.Change) error {
		var gap changes.Gap
		if err := c.Load(ctx); err != nil {
			return err
		}
		if err := json.Unmarshal(c.Value, &gap); err != nil || !gap.Lost {
			return err
		}
		for _, name := range gap.Resources {
			if resource, _, _ := strings.Cut(name, " in "); resources[resource] {
				status.Notes = append(status.Notes, fmt.Sprintf("from %s to %s the mirror has not seen what happened to %s: who made the changes until then is not known",
					gap.Since.UTC().Format(time.RFC3339), gap.Until.UTC().Format(time.RFC3339), resource))
			}
		}
		return nil
	})
	return apistorage.ClientError(err)
}

// behind is how long the mirror has to see a change, before it is asked for another plan.
const behind = time.Second

// ApplyElsewhere applies a plan with spec.operations in the cluster that config reaches, step by step, and sets the results. A step whose object has
// changed since is planned again, and fails if that would do anything else or overwrite more. again returns a new plan.
func ApplyElsewhere(ctx context.Context, config *rest.Config, u *Undo, again func(context.Context) (*Undo, error)) error {
	auditID := string(uuid.NewUUID())
	cluster, err := newCluster(config, auditID)
	if err != nil {
		return err
	}
	p, began := &planner{cluster: cluster, uids: map[string]string{}}, metav1.NewTime(time.Now().Add(-time.Second).UTC())
	u.Spec.Apply, u.Status.Complete = true, true
	u.Status.Notes = append(u.Status.Notes, "applied step by step, in the cluster itself")
	var failed []*Step
	for i := range u.Status.Plan {
		step := &u.Status.Plan[i]
		if step.Action == Leave {
			continue
		}
		err := step.receive()
		if err == nil {
			if step.Message = needed(step, failed); step.Message != "" {
				step.Result, u.Status.Complete = NotTried, false
				failed = append(failed, step)
				continue
			}
			err = p.elsewhere(ctx, step, again)
		}
		if err != nil {
			step.Result, step.Message, u.Status.Complete = Failed, strings.TrimSpace(step.Message+" "+err.Error()), false
			failed = append(failed, step)
			continue
		}
		step.Result = Done
		u.Status.Applied = &ChangeSelector{FieldManager: Manager, Since: &began}
	}
	return nil
}

// receive sets the step's work from what a mirror has sent.
func (s *Step) receive() error {
	version, err := schema.ParseGroupVersion(s.Object.APIVersion)
	if err != nil {
		return err
	}
	if s.Write == nil {
		return fmt.Errorf("the mirror has not said what to write: it is too old")
	}
	w := &work{key: key{group: version.Group, resource: s.Object.Resource, namespace: s.Object.Namespace, name: s.Object.Name}, uid: s.Write.UID}
	if s.Write.Object != nil {
		w.object = s.Write.Object.Raw
		fields, err := decode(w.object)
		if err != nil {
			return err
		}
		w.owners = (&unstructured.Unstructured{Object: fields}).GetOwnerReferences()
	}
	if s.Write.Patch != nil {
		w.patch = s.Write.Patch.Raw
	}
	if s.Write.Managed != nil {
		if err := json.Unmarshal(s.Write.Managed.Raw, &w.managed); err != nil {
			return err
		}
	}
	if s.Write.LiveUID != "" {
		w.live = &unstructured.Unstructured{Object: map[string]any{}}
		w.live.SetNamespace(w.namespace)
		w.live.SetName(w.name)
		w.live.SetUID(types.UID(s.Write.LiveUID))
		w.live.SetResourceVersion(s.Write.ResourceVersion)
	}
	s.work, s.Write = w, nil
	return nil
}

// elsewhere applies a step.
func (p *planner) elsewhere(ctx context.Context, step *Step, again func(context.Context) (*Undo, error)) (err error) {
	for range attempts {
		if err = p.writeElsewhere(ctx, step); !apierrors.IsConflict(err) || step.Action == Create {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(behind):
		}
		planned, failed := again(ctx)
		if failed != nil {
			return err
		}
		var anew *Step
		for i := range planned.Status.Plan {
			if planned.Status.Plan[i].Object == step.Object {
				anew = &planned.Status.Plan[i]
			}
		}
		if anew == nil || anew.Action != step.Action || len(anew.Conflicts) > len(step.Conflicts) || anew.receive() != nil {
			return err
		}
		step.work, step.Diff = anew.work, anew.Diff
	}
	return err
}

func (p *planner) writeElsewhere(ctx context.Context, step *Step) error {
	w := step.work
	version, err := schema.ParseGroupVersion(step.Object.APIVersion)
	if err != nil {
		return err
	}
	resource := version.WithResource(w.resource)
	var written *unstructured.Unstructured
	switch step.Action {
	case Create:
		written, err = p.create(ctx, step, resource)
	case Delete:
		if err = p.cluster.delete(ctx, resource, w.live); apierrors.IsNotFound(err) {
			err = nil
		}
	default:
		written, err = p.cluster.patch(ctx, resource, w.live, w.patch)
	}
	if err == nil && written != nil {
		p.wrote(ctx, step, resource, written)
	}
	return err
}
