package servertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/util/retry"
)

// readManifests reads the objects in files, and in the files of folders whose names end in .yaml, .yml or .json.
func readManifests(paths []string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, path := range paths {
		files := []string{path}
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if info.IsDir() {
			files = nil
			for _, pattern := range []string{"*.yaml", "*.yml", "*.json"} {
				found, err := filepath.Glob(filepath.Join(path, pattern))
				if err != nil {
					return nil, err
				}
				files = append(files, found...)
			}
		}
		for _, file := range files {
			found, err := readManifest(file)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			objects = append(objects, found...)
		}
	}
	return objects, nil
}

func readManifest(path string) ([]*unstructured.Unstructured, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var objects []*unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(file, 4096); ; {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		if len(object.Object) > 0 { // more than a comment
			objects = append(objects, object)
		}
	}
}

// manifests are the objects in the options' files.
type manifests struct {
	definitions []*apiextensionsv1.CustomResourceDefinition
	webhooks    []*unstructured.Unstructured
}

// read reads the options' files, and chooses the address of webhooks, if there are any.
func (s *Server) read(o Options) (m manifests, err error) {
	if m.definitions, err = definitions(o.CRDs); err != nil {
		return m, err
	}
	if m.webhooks, err = readManifests(o.Webhooks); err != nil {
		return m, err
	}
	return m, s.prepareWebhooks(len(o.Webhooks) > 0, m.definitions)
}

// install creates the objects, or updates those that a copy has, and returns when custom resources are served.
func (s *Server) install(ctx context.Context, m manifests) error {
	client, err := clientset.NewForConfig(s.Config)
	if err != nil {
		return err
	}
	for _, definition := range m.definitions {
		if err := apply(ctx, client.ApiextensionsV1().CustomResourceDefinitions(), definition); err != nil {
			return fmt.Errorf("install the CustomResourceDefinition %s: %w", definition.Name, err)
		}
	}
	for _, definition := range m.definitions {
		if err := served(ctx, client, definition); err != nil {
			return err
		}
	}
	return s.installWebhooks(ctx, m.webhooks)
}

// objects are a client's objects of a kind.
type objects[T metav1.Object] interface {
	Create(context.Context, T, metav1.CreateOptions) (T, error)
	Get(context.Context, string, metav1.GetOptions) (T, error)
	Update(context.Context, T, metav1.UpdateOptions) (T, error)
}

// apply creates an object, or updates it.
func apply[T metav1.Object](ctx context.Context, client objects[T], object T) error {
	_, err := client.Create(ctx, object, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		former, err := client.Get(ctx, object.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		object.SetResourceVersion(former.GetResourceVersion())
		_, err = client.Update(ctx, object, metav1.UpdateOptions{})
		return err
	})
}

func definitions(paths []string) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	objects, err := readManifests(paths)
	if err != nil {
		return nil, err
	}
	var definitions []*apiextensionsv1.CustomResourceDefinition
	for _, object := range objects {
		if object.GroupVersionKind() != apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition") {
			continue
		}
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, definition); err != nil {
			return nil, fmt.Errorf("the CustomResourceDefinition %s: %w", object.GetName(), err)
		}
		definitions = append(definitions, definition)
	}
	return definitions, nil
}

// served waits until the objects of a definition can be listed in all served versions.
func served(ctx context.Context, client clientset.Interface, definition *apiextensionsv1.CustomResourceDefinition) error {
	spec := definition.Spec
	var last error
	err := wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		for _, version := range spec.Versions {
			if !version.Served {
				continue
			}
			path := []string{"/apis", spec.Group, version.Name, spec.Names.Plural}
			if last = client.Discovery().RESTClient().Get().AbsPath(path...).Param("limit", "1").Do(ctx).Error(); last != nil {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("the CustomResourceDefinition %s was installed, but its objects are not served: %w", definition.Name, errors.Join(last, err))
	}
	return nil
}
