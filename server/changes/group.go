// Package changes serves the history of the cluster as an API: group history.sqube.io, resource changes.
//
//	the log ──► Log.Each: selected, allowed (rights.go), decrypted ──► REST: list, get, watch, Tables
//
// A user sees the changes of objects that they may list, or get if they name them, in the lives of these objects, their namespaces and
// definitions. What is hidden leaves no trace: no gap in a page, no count, no event. Reads of other resources at former revisions are bounded
// in the same way, by Log.Guard. Of secret values, only a get of one change shows more than sizes.
package changes

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/sqube/sqube/server/codecs"
)

// GroupVersion is that of the API.
var GroupVersion = schema.GroupVersion{Group: "history.sqube.io", Version: "v1alpha1"}

// Reviews are the groups of Kubernetes' own resources that are created to ask something. They are not stored.
var Reviews = []string{"authentication.k8s.io", "authorization.k8s.io"}

// Resource is the name of the resource.
const Resource = "changes"

// Scheme has the kinds of the group. They have one version, which is also the internal one.
var Scheme = runtime.NewScheme()

// Register adds kinds to the group.
func Register(objects ...runtime.Object) {
	Scheme.AddKnownTypes(GroupVersion, objects...)
	Scheme.AddKnownTypes(schema.GroupVersion{Group: GroupVersion.Group, Version: runtime.APIVersionInternal}, objects...)
}

func init() {
	Register(&Change{}, &ChangeList{})
	metav1.AddToGroupVersion(Scheme, GroupVersion)
	utilruntime.Must(Scheme.AddFieldLabelConversionFunc(GroupVersion.WithKind("Change"), checkSelector))
}

// Group returns the group with the given storages.
func Group(storages map[string]rest.Storage) *genericapiserver.APIGroupInfo {
	return &genericapiserver.APIGroupInfo{
		PrioritizedVersions:          []schema.GroupVersion{GroupVersion},
		VersionedResourcesStorageMap: map[string]map[string]rest.Storage{GroupVersion.Version: storages},
		OptionsExternalVersion:       &schema.GroupVersion{Version: "v1"},
		Scheme:                       Scheme,
		ParameterCodec:               metav1.ParameterCodec,
		NegotiatedSerializer:         codecs.WithoutProtobuf(Scheme),
	}
}

// Questions serve a resource of the group whose objects can only be created, and are returned with an answer instead of being stored.
type Questions[T any, P interface {
	*T
	metav1.Object
	runtime.Object
}] struct {
	Singular string
	// Admit limits how many are answered at once. It returns what is to be called after the answer, or the error for one too many.
	Admit func(context.Context) (done func(), err error)
	// Answer answers a question.
	Answer func(context.Context, P, *metav1.CreateOptions) error
}

// Slots admits n questions at once, whoever asks; busy is the error for one more.
func Slots(n int, busy string) func(context.Context) (done func(), err error) {
	slots := make(chan struct{}, n)
	return func(context.Context) (func(), error) {
		select {
		case slots <- struct{}{}:
			return func() { <-slots }, nil
		default:
			return nil, apierrors.NewTooManyRequests(busy, 1)
		}
	}
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
	done, err := q.Admit(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return object, q.Answer(ctx, question, options)
}
