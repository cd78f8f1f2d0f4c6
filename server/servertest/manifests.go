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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
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

// install creates the objects in the options' files, and returns when custom resources are served.
func (s *Server) install(ctx context.Context, o Options) error {
	definitions, err := definitions(o.CRDs)
	if err != nil {
		return err
	}
	configurations, err := readManifests(o.Webhooks)
	if err != nil {
		return err
	}
	if err := s.prepareWebhooks(len(o.Webhooks) > 0, definitions); err != nil {
		return err
	}
	client, err := clientset.NewForConfig(s.Config)
	if err != nil {
		return err
	}
	for _, definition := range definitions {
		if _, err := client.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, definition, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("install the CustomResourceDefinition %s: %w", definition.Name, err)
		}
	}
	for _, definition := range definitions {
		if err := served(ctx, client, definition); err != nil {
			return err
		}
	}
	return s.installWebhooks(ctx, configurations)
}

// definitions reads CustomResourceDefinitions.
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
