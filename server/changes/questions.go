package changes

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Questions serve a resource of the group whose objects can only be created, and are returned with an answer instead of being stored.
type Questions[T any, P interface {
	*T
	metav1.Object
	runtime.Object
}] struct {
	Singular string
	// Slots limit how many are answered at once; Busy is the error for one more.
	Slots chan struct{}
	Busy  string
	// Answer answers a question.
	Answer func(context.Context, P, *metav1.CreateOptions) error
}

// New implements rest.Storage.
func (*Questions[T, P]) New() runtime.Object { return P(new(T)) }

// Destroy implements rest.Storage.
func (*Questions[T, P]) Destroy() {}

// NamespaceScoped implements rest.Scoper.
func (*Questions[T, P]) NamespaceScoped() bool { return false }

// GetSingularName implements rest.SingularNameProvider.
func (q *Questions[T, P]) GetSingularName() string { return q.Singular }

// Create implements rest.Creater.
func (q *Questions[T, P]) Create(ctx context.Context, object runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	question, ok := object.(P)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a %s: %T", q.Singular, object))
	}
	question.SetManagedFields(nil) // it is not stored, so its fields have no owners
	if validate != nil {
		if err := validate(ctx, object.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	select {
	case q.Slots <- struct{}{}:
		defer func() { <-q.Slots }()
	default:
		return nil, apierrors.NewTooManyRequests(q.Busy, 1)
	}
	return object, q.Answer(ctx, question, options)
}
