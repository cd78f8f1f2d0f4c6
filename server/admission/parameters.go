package admission

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/admission"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
)

// parameterTimeout is how long a policy waits for a parameter, as long as upstream's plugins wait until they are ready.
const parameterTimeout = 10 * time.Second

// parametersAreStored lets policies use their parameters as they are stored. Upstream's plugins use informers, which lag behind and have not
// synced right after a start. The informer of a built-in kind stops for good when the last binding that uses the kind is deleted, and later
// bindings then use what it had.
type parametersAreStored struct {
	informers informers.SharedInformerFactory
	objects   dynamic.Interface
	kinds     parameterKinds
}

// Initialize implements admission.PluginInitializer.
func (p parametersAreStored) Initialize(plugin admission.Interface) {
	switch plugin.(type) {
	case *validatingpolicy.Plugin, *mutatingpolicy.Plugin:
		policies := plugin.(interface {
			SetExternalKubeInformerFactory(informers.SharedInformerFactory)
			SetRESTMapper(meta.RESTMapper)
		})
		policies.SetExternalKubeInformerFactory(parameterInformers{p.informers, p.objects})
		policies.SetRESTMapper(p.kinds)
	}
}

// parameterKinds finds the resource of a kind as soon as it is served.
type parameterKinds struct {
	meta.RESTMapper
	served    discovery.ServerResourcesInterface
	published func(context.Context) bool // Config.Published
	drained   <-chan struct{}
}

// RESTMapping asks the server about a kind that the mapper doesn't know, which can be new or not have been served yet. The plugin delays
// requests until it has had a first answer about all kinds.
func (k parameterKinds) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	k.published(wait.ContextForChannel(k.drained))
	mapping, err := k.RESTMapper.RESTMapping(kind, versions...)
	if err == nil || !meta.IsNoMatchError(err) || len(versions) == 0 {
		return mapping, err
	}
	version := schema.GroupVersion{Group: kind.Group, Version: versions[0]}
	list, failed := k.served.ServerResourcesForGroupVersion(version.String())
	if failed != nil {
		return nil, err
	}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{version})
	for _, r := range list.APIResources {
		scope := meta.RESTScopeRoot
		if r.Namespaced {
			scope = meta.RESTScopeNamespace
		}
		if r.Group == "" && r.Version == "" { // others are of the kind of another group: subresources
			mapper.AddSpecific(version.WithKind(r.Kind), version.WithResource(r.Name), version.WithResource(r.SingularName), scope)
		}
	}
	return mapper.RESTMapping(kind, versions[0])
}

// parameterInformers are the shared informers, from which the plugins take those of policies, bindings and namespaces. ForResource, which they
// call for parameters, returns a lister that reads what is stored.
type parameterInformers struct {
	informers.SharedInformerFactory
	objects dynamic.Interface
}

// ForResource returns the parameters of a resource. They need not be started.
func (f parameterInformers) ForResource(resource schema.GroupVersionResource) (informers.GenericInformer, error) {
	return parameters{objects: f.objects.Resource(resource)}, nil
}

// Start does nothing. Upstream's plugins call it for the informer of a parameter, and stop all that have started with it.
func (parameterInformers) Start(<-chan struct{}) {}

// parameters is an informer and a lister of the objects of a resource, in one namespace if it has one.
type parameters struct {
	cache.SharedIndexInformer // nil
	objects                   dynamic.NamespaceableResourceInterface
	namespace                 string
}

// Informer returns an informer that only says that it has synced.
func (p parameters) Informer() cache.SharedIndexInformer { return p }

// HasSynced reports true.
func (parameters) HasSynced() bool { return true }

// Lister returns the lister.
func (p parameters) Lister() cache.GenericLister { return p }

// ByNamespace returns a lister of the objects in the namespace.
func (p parameters) ByNamespace(namespace string) cache.GenericNamespaceLister {
	p.namespace = namespace
	return p
}

// Get reads the object of that name.
func (p parameters) Get(name string) (runtime.Object, error) {
	ctx, cancel := context.WithTimeout(context.Background(), parameterTimeout)
	defer cancel()
	object, err := p.objects.Namespace(p.namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return asInformersHaveIt(object)
}

// List reads the objects that the selector selects.
func (p parameters) List(selector labels.Selector) ([]runtime.Object, error) {
	ctx, cancel := context.WithTimeout(context.Background(), parameterTimeout)
	defer cancel()
	list, err := p.objects.Namespace(p.namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return nil, err
	}
	objects := make([]runtime.Object, len(list.Items))
	for i := range list.Items {
		if objects[i], err = asInformersHaveIt(&list.Items[i]); err != nil {
			return nil, err
		}
	}
	return objects, nil
}

// asInformersHaveIt returns an object of a built-in kind in its Go type, without its kind, so that an expression sees the same fields as
// in kube-apiserver.
func asInformersHaveIt(object *unstructured.Unstructured) (runtime.Object, error) {
	typed, err := scheme.Scheme.New(object.GroupVersionKind())
	if err != nil { // it is not built in
		return object, nil
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed); err != nil {
		return nil, fmt.Errorf("parameter %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	typed.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return typed, nil
}
