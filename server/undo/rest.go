package undo

import (
	"context"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
	clientrest "k8s.io/client-go/rest"

	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/server/gate"
)

// Resource is the name of the resource.
const Resource = "undos"

func init() { changes.Register(&Undo{}) }

// maxPlanning is how long an undo is planned. A request may take longer, but what is left of it is for applying the plan.
const maxPlanning = 15 * time.Second

// Config is what the resource needs.
type Config struct {
	Log *changes.Log // what users may know of history
	// OnBehalf returns a configuration for requests to this server as the user of a request, and the audit id for these.
	OnBehalf func(context.Context) (*clientrest.Config, string, error)
	// Together commits what work writes with its context all or not at all, as a transaction, whose name begins with prefix. It returns its name.
	// It calls work again if others have changed the same objects meanwhile, and returns an error of work.
	Together func(ctx context.Context, prefix string, work func(context.Context) error) (name string, err error)
	// Mirror is set if the objects are those of another cluster, which the server mirrors, and WithoutSecrets if it does not have the values of
	// Secrets.
	Mirror, WithoutSecrets bool
	// MostTogether is how many objects a transaction can have.
	MostTogether int
}

// REST serves the resource undos, which can only be created.
type REST struct {
	changes.Questions[Undo, *Undo]
}

// NewREST returns the resource.
func NewREST(c Config) *REST {
	g, memory := gate.New("undo", gate.Limits{Anyones: 2, Reserved: 2, Each: 1, Waiting: 2}), &budget{}
	return &REST{changes.Questions[Undo, *Undo]{
		Singular: "undo",
		Admit:    func(ctx context.Context) (func(), error) { return g.Admit(ctx, c.Log.Authorizer, Resource) },
		Answer: func(ctx context.Context, undo *Undo, options *metav1.CreateOptions) error {
			return undo.answer(ctx, &c, memory, options)
		},
	}}
}

// CreatesInNamespaces implements handlers.CreaterInNamespaces, for those who may undo in one namespace only.
func (*REST) CreatesInNamespaces() {}

// Definition describes the resource.
func Definition() *apiextensionsv1.CustomResourceDefinition {
	return changes.Define(Undo{}, Resource, "undo", apiextensionsv1.ClusterScoped, "Undo brings back what was: an object as it was at a moment, a deleted object or namespace, what a user or a manager changed. It can only be created. The answer has the plan in its status; with spec.apply, it has been applied with the rights of the user.")
}

// answer plans the undo and, if that is asked for, applies it, as the user of the request.
func (undo *Undo) answer(ctx context.Context, c *Config, memory *budget, options *metav1.CreateOptions) error {
	config, auditID, err := c.OnBehalf(ctx)
	if err != nil {
		return err
	}
	cluster, err := newCluster(config, auditID)
	if err != nil {
		return err
	}
	caller, _ := request.UserFrom(ctx) // as which onBehalf works
	p := &planner{past: newPast(c.Log, caller), cluster: cluster, account: &account{budget: memory}, most: maxObjects, withoutSecrets: c.WithoutSecrets}
	defer p.account.release()
	if err := undo.Spec.limit(request.NamespaceValue(ctx)); err != nil {
		return err
	}
	inTime, cancel := inTime(ctx)
	defer cancel()
	planning, cancel := context.WithTimeout(inTime, maxPlanning)
	defer cancel()
	steps, err := p.plan(planning, &undo.Spec)
	if err != nil && planning.Err() != nil && ctx.Err() == nil {
		return apierrors.NewTimeoutError("planning this takes too long: nothing has been changed; limit it to a namespace, to resources, or to a shorter time", 0)
	}
	if err != nil {
		return err
	}
	undo.Status = Status{Plan: steps, Notes: p.selection.notes}
	if c.Mirror {
		if err := p.addGaps(planning, &undo.Status); err != nil {
			return err
		}
	}
	switch {
	case undo.Spec.Operations && !undo.Spec.Apply && c.Mirror:
		return p.addWrites(planning, steps)
	case undo.Spec.Operations && !undo.Spec.Apply:
		return p.tell(planning, steps)
	case undo.Spec.Apply && c.Mirror:
		return apierrors.NewMethodNotSupported(changes.GroupVersion.WithResource(Resource).GroupResource(), "apply: this is a mirror of another cluster; there, sqube undo --mirror applies the plan")
	}
	if undo.Spec.Apply && len(options.DryRun) == 0 {
		return p.carryOut(ctx, c, &undo.Status)
	}
	return nil
}
