// Package everykind fills a cluster with objects of every kind, in every state that matters to whoever reads them later: another
// version, another server, or an import.
package everykind

import (
	"bytes"
	"context"
	_ "embed" // for the state
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

var (
	//go:embed objects.yaml
	stable []byte
	//go:embed more.yaml
	more []byte
	// fixed has objects that can't be changed: a server of the previous version lacks a field of them, and would remove it.
	//go:embed fixed.yaml
	fixed []byte
)

// Manager is the field manager of the objects.
const Manager = "record"

// Filler creates objects and reads them. Its methods return the errors of requests.
type Filler struct {
	Client  kubernetes.Interface
	objects dynamic.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper
}

// New returns a filler of the cluster.
func New(config *rest.Config) (*Filler, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &Filler{client, objects, restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery()))}, nil
}

// Create creates objects of every kind that every API server serves, each as soon as its kind is served.
func (f *Filler) Create(ctx context.Context) error { return f.create(ctx, stable) }

// MoreFlags are what a server needs for CreateMore, besides controllers.
var MoreFlags = []string{
	"--runtime-config=api/beta=true",
	"--feature-gates=ClusterTrustBundle=true,StorageVersionMigrator=true,DRADeviceTaintRules=true",
}

// CreateMore creates what is left to the controllers of a server, and objects of beta APIs.
func (f *Filler) CreateMore(ctx context.Context) error { return f.create(ctx, more) }

func (f *Filler) create(ctx context.Context, manifests []byte) error {
	all, err := decode(manifests)
	for _, object := range all {
		if err == nil {
			_, err = f.Make(ctx, object, metav1.CreateOptions{})
		}
		if apierrors.IsAlreadyExists(err) {
			err = nil
		}
	}
	return err
}

// All returns what Create and CreateMore create, and one object of each kind of which these have none, since it can't be changed.
func All() ([]*unstructured.Unstructured, error) {
	return decode(bytes.Join([][]byte{stable, more, fixed}, []byte("\n---\n")))
}

func decode(manifests []byte) (all []*unstructured.Unstructured, err error) {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifests), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, object)
	}
}

// Make creates an object, as soon as its kind is served, and returns what the server makes of it.
func (f *Filler) Make(ctx context.Context, object *unstructured.Unstructured, options metav1.CreateOptions) (made *unstructured.Unstructured, err error) {
	options.FieldManager = Manager
	exists := false
	err = eventually(ctx, func() error {
		objects, err := f.Of(object)
		if err != nil {
			return err
		}
		made, err = objects.Create(ctx, object, options)
		if exists = apierrors.IsAlreadyExists(err); exists {
			return nil
		}
		return err
	})
	if err == nil && exists {
		err = apierrors.NewAlreadyExists(schema.GroupResource{Resource: object.GetKind()}, object.GetName())
	}
	if err != nil && !exists {
		err = fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return made, err
}

// Of returns the objects of an object's kind, in its namespace. It returns an error while the kind is not served.
func (f *Filler) Of(object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	mapping, err := f.mapper.RESTMapping(object.GroupVersionKind().GroupKind(), object.GroupVersionKind().Version)
	if err != nil {
		f.mapper.Reset()
		return nil, err
	}
	return f.objects.Resource(mapping.Resource).Namespace(object.GetNamespace()), nil
}

// eventually retries until there is no error: new kinds are not served at once.
func eventually(ctx context.Context, try func() error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		last = try()
		return last == nil, nil
	})
	if err != nil {
		err = last
	}
	return err
}

// Change updates, deletes and recreates objects, so that the log has older versions and deletions too.
func (f *Filler) Change(ctx context.Context) error {
	maps := f.Client.CoreV1().ConfigMaps("prod")
	for i := range 3 {
		patch := fmt.Appendf(nil, `{"data":{"round":"%d"}}`, i)
		if _, err := maps.Patch(ctx, "changed", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	for _, name := range []string{"again", "gone", "going"} { // the last has a finalizer
		if err := maps.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	again := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "again"}, "data": map[string]any{"a": "b"}}}
	configMaps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	if _, err := f.objects.Resource(configMaps).Namespace("prod").Apply(ctx, "again", again, metav1.ApplyOptions{FieldManager: Manager}); err != nil {
		return err
	}
	status := []byte(`{"status":{"phase":"Running","podIP":"10.244.0.5","conditions":[{"type":"Ready","status":"True"}]}}`)
	if _, err := f.Client.CoreV1().Pods("prod").Patch(ctx, "web-1", types.MergePatchType, status, metav1.PatchOptions{}, "status"); err != nil {
		return err
	}
	return f.changeVersion(ctx)
}

// changeVersion makes v1 the storage version of widgets, and creates a widget in it.
func (f *Filler) changeVersion(ctx context.Context) error {
	definitions := f.objects.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	patch := []byte(`[{"op":"replace","path":"/spec/versions/0/storage","value":false},{"op":"replace","path":"/spec/versions/1/storage","value":true}]`)
	if _, err := definitions.Patch(ctx, "widgets.example.com", types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
		return err
	}
	err := eventually(ctx, func() error {
		definition, err := definitions.Get(ctx, "widgets.example.com", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if stored, _, _ := unstructured.NestedStringSlice(definition.Object, "status", "storedVersions"); len(stored) != 2 {
			return fmt.Errorf("the stored versions are %q", stored)
		}
		return nil
	})
	if err != nil {
		return err
	}
	newer := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "newer"}, "spec": map[string]any{"color": "blue"}}}
	widgets := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	_, err = f.objects.Resource(widgets).Namespace("prod").Create(ctx, newer, metav1.CreateOptions{})
	return err
}

// Token returns a token of prod/robot that does not expire within the lifetime of the recordings.
func (f *Filler) Token(ctx context.Context) (string, error) {
	seconds := int64(1<<32 - 1)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	made, err := f.Client.CoreV1().ServiceAccounts("prod").CreateToken(ctx, "robot", request, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return made.Status.Token, nil
}

// Lists returns the responses to lists of every resource in every version.
func (f *Filler) Lists(ctx context.Context) (map[string]json.RawMessage, error) {
	_, all, err := f.Client.Discovery().ServerGroupsAndResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) { // that of an APIService
		return nil, err
	}
	lists := map[string]json.RawMessage{}
	for _, version := range all {
		for _, resource := range version.APIResources {
			// Component statuses are not stored.
			if strings.Contains(resource.Name, "/") || !slices.Contains(resource.Verbs, "list") || resource.Name == "componentstatuses" {
				continue
			}
			path := "/apis/" + version.GroupVersion + "/" + resource.Name
			if version.GroupVersion == "v1" {
				path = "/api/v1/" + resource.Name
			}
			list, err := f.Client.Discovery().RESTClient().Get().AbsPath(path).DoRaw(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			lists[path] = list
		}
	}
	return lists, nil
}

// Settled waits until the controllers have completed what CreateMore has created.
func (f *Filler) Settled(ctx context.Context) error {
	return eventually(ctx, func() error {
		secret, err := f.Client.CoreV1().Secrets("prod").Get(ctx, "robot-token", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(secret.Data["token"]) == 0 {
			return errors.New("the Secret of a service account has no token")
		}
		quota, err := f.Client.CoreV1().ResourceQuotas("prod").Get(ctx, "quota", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if quota.Status.Used == nil {
			return errors.New("the quota is not counted")
		}
		return nil
	})
}
