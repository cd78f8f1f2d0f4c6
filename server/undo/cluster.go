package undo

import (
	"context"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json" // keeps all digits of integers
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// cluster are the objects as they are, as the caller may read and write them. Errors are those of the API.
type cluster struct {
	dynamic   dynamic.Interface
	discovery discovery.DiscoveryInterface
	resources map[schema.GroupVersion][]metav1.APIResource
	auditID   string // of all requests
}

// newCluster returns the cluster that a configuration reaches, as its user. All requests have the same audit id, so that it is known which
// writes belong together.
func newCluster(config *rest.Config, auditID string) (*cluster, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = Manager // the manager of deletions
	config.WarningHandler = rest.NoWarnings{}
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	config.Wrap(WithAuditID(auditID))
	dynamic, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	discovery, err := discovery.NewDiscoveryClientForConfig(config)
	return &cluster{dynamic: dynamic, discovery: discovery, resources: map[schema.GroupVersion][]metav1.APIResource{}, auditID: auditID}, err
}

// WithAuditID returns what gives the requests of a transport an audit id.
func WithAuditID(auditID string) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper { return identified{next, auditID} }
}

// identified gives requests an audit id.
type identified struct {
	next    http.RoundTripper
	auditID string
}

// RoundTrip implements http.RoundTripper.
func (i identified) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(auditinternal.HeaderAuditID, i.auditID)
	return i.next.RoundTrip(r)
}

func (c *cluster) in(resource schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return c.dynamic.Resource(resource)
	}
	return c.dynamic.Resource(resource).Namespace(namespace)
}

func (c *cluster) get(ctx context.Context, resource schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
	return c.in(resource, namespace).Get(ctx, name, metav1.GetOptions{})
}

func (c *cluster) create(ctx context.Context, resource schema.GroupVersionResource, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return c.in(resource, object.GetNamespace()).Create(ctx, object, metav1.CreateOptions{FieldManager: Manager})
}

// patch applies a JSON merge patch to live, if it still is that version; to any version if it has none.
func (c *cluster) patch(ctx context.Context, resource schema.GroupVersionResource, live *unstructured.Unstructured, patch []byte) (*unstructured.Unstructured, error) {
	var fields map[string]any
	if err := json.Unmarshal(patch, &fields); err != nil {
		return nil, err
	}
	changed := &unstructured.Unstructured{Object: fields}
	changed.SetResourceVersion(live.GetResourceVersion())
	changed.SetUID(live.GetUID())
	body, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	namespace, name := live.GetNamespace(), live.GetName()
	return c.in(resource, namespace).Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: Manager})
}

// delete deletes live, if it still is that version; any version if it has none.
func (c *cluster) delete(ctx context.Context, resource schema.GroupVersionResource, live *unstructured.Unstructured) error {
	uid, version := live.GetUID(), live.GetResourceVersion()
	required := &metav1.Preconditions{UID: &uid}
	if version != "" {
		required.ResourceVersion = &version
	}
	return c.in(resource, live.GetNamespace()).Delete(ctx, live.GetName(), metav1.DeleteOptions{Preconditions: required})
}

// resource returns the resource of a kind and whether the server has it, as far as the caller may know. If not, it is a guess.
func (c *cluster) resource(kind schema.GroupVersionKind) (_ metav1.APIResource, served bool) {
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	guess := metav1.APIResource{Name: plural.Resource, Kind: kind.Kind, Namespaced: true}
	all, known := c.resources[kind.GroupVersion()]
	if !known {
		switch list, err := c.discovery.ServerResourcesForGroupVersion(kind.GroupVersion().String()); {
		case err == nil:
			all = list.APIResources
		case !apierrors.IsNotFound(err):
			return guess, true
		}
		c.resources[kind.GroupVersion()] = all
	}
	for _, r := range all {
		if r.Kind == kind.Kind && !strings.Contains(r.Name, "/") {
			return r, true
		}
	}
	return guess, false
}

// uidOf returns the uid of the object that an owner reference names.
func (c *cluster) uidOf(ctx context.Context, apiVersion, kind, namespace, name string) (string, error) {
	version, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return "", apierrors.NewNotFound(schema.GroupResource{Resource: kind}, name)
	}
	resource, _ := c.resource(version.WithKind(kind))
	if !resource.Namespaced {
		namespace = ""
	}
	owner, err := c.get(ctx, version.WithResource(resource.Name), namespace, name)
	if err != nil {
		return "", err
	}
	return string(owner.GetUID()), nil
}
