package bootstrap

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	flowcontrolbootstrap "k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/registry/flowcontrol/ensurer"
	flowcontrolrest "k8s.io/kubernetes/pkg/registry/flowcontrol/rest"
)

// flowControlInterval is how often changes to mandatory objects are reverted, like upstream.
const flowControlInterval = time.Minute

// flowControlHook creates the suggested and the mandatory priority levels and flow schemas, maintains the mandatory ones, and
// removes those of an older version that this one does not have.
func flowControlHook(client kubernetes.Interface, interval time.Duration) *hook {
	ensure := func(ctx context.Context) error {
		if err := ensurePriorityLevels(ctx, client); err != nil {
			if notServed(err) {
				return nil
			}
			return fmt.Errorf("bootstrap priority levels: %w", err)
		}
		if err := ensureFlowSchemas(ctx, client); err != nil {
			return fmt.Errorf("bootstrap flow schemas: %w", err)
		}
		return nil
	}
	return &hook{
		name:   flowcontrolrest.PostStartHookName,
		ensure: ensure,
		stored: nothing,
		serve: readyAtOnce(func(ctx context.Context) {
			_ = wait.PollUntilContextCancel(ctx, interval, false, func(ctx context.Context) (bool, error) {
				if err := ensure(ctx); err != nil && ctx.Err() == nil {
					utilruntime.HandleErrorWithContext(ctx, err, "Flow schemas and priority levels are not up to date, trying again",
						"in", interval)
				}
				return false, nil // until ctx ends
			})
		}),
	}
}

func ensurePriorityLevels(ctx context.Context, client kubernetes.Interface) error {
	levels := client.FlowcontrolV1().PriorityLevelConfigurations()
	list, err := levels.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	return ensureObjects(ctx, ensurer.NewPriorityLevelConfigurationOps(levels, newSnapshot(ctx, list.Items, levels.Get)),
		flowcontrolbootstrap.SuggestedPriorityLevelConfigurations, flowcontrolbootstrap.MandatoryPriorityLevelConfigurations)
}

func ensureFlowSchemas(ctx context.Context, client kubernetes.Interface) error {
	schemas := client.FlowcontrolV1().FlowSchemas()
	list, err := schemas.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	return ensureObjects(ctx, ensurer.NewFlowSchemaOps(schemas, newSnapshot(ctx, list.Items, schemas.Get)),
		flowcontrolbootstrap.SuggestedFlowSchemas, flowcontrolbootstrap.MandatoryFlowSchemas)
}

// flowObject is an object of either kind.
type flowObject interface {
	comparable
	metav1.Object
	runtime.Object
}

// ensureObjects creates or updates each object by upstream's rules, then removes objects that only an older version has.
func ensureObjects[T flowObject](ctx context.Context, ops ensurer.ObjectOps[T], suggested, mandatory []T) error {
	err := each(ctx, suggested, func(ctx context.Context, object T) error {
		return ensurer.EnsureConfiguration(ctx, ops, object, ensurer.NewSuggestedEnsureStrategy[T]())
	})
	if err != nil {
		return err
	}
	err = each(ctx, mandatory, func(ctx context.Context, object T) error {
		return ensurer.EnsureConfiguration(ctx, ops, object, ensurer.NewMandatoryEnsureStrategy[T]())
	})
	if err != nil {
		return err
	}
	return ensurer.RemoveUnwantedObjects(ctx, ops, slices.Concat(suggested, mandatory))
}

// snapshot is a lister over one list instead of an informer. Objects that are not in the list are fetched, in case another server
// has created them since.
type snapshot[T metav1.Object] struct {
	listed map[string]T
	live   func(name string) (T, error)
}

func newSnapshot[T any, P object[T]](ctx context.Context, items []T, get func(context.Context, string, metav1.GetOptions) (P, error)) snapshot[P] {
	return snapshot[P]{byName[T, P](items), func(name string) (P, error) { return get(ctx, name, metav1.GetOptions{}) }}
}

// List returns the listed objects that the selector matches.
func (s snapshot[T]) List(selector labels.Selector) ([]T, error) {
	var objects []T
	for _, object := range s.listed {
		if selector.Matches(labels.Set(object.GetLabels())) {
			objects = append(objects, object)
		}
	}
	return objects, nil
}

// Get returns the object, from the list or from the server.
func (s snapshot[T]) Get(name string) (T, error) {
	if object, ok := s.listed[name]; ok {
		return object, nil
	}
	return s.live(name)
}
