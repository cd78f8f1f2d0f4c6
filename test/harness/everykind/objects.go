package everykind

import (
	"encoding/json"
	"path"
	"regexp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Objects returns the objects of a list that a Filler has created. All others belong to servers.
func Objects(list []byte) (found []*unstructured.Unstructured, err error) {
	var parsed struct{ Items []map[string]any }
	if err := json.Unmarshal(list, &parsed); err != nil {
		return nil, err
	}
	for _, item := range parsed.Items {
		object := &unstructured.Unstructured{Object: item}
		for _, entry := range object.GetManagedFields() {
			if entry.Manager == Manager {
				found = append(found, object)
				break
			}
		}
	}
	return found, nil
}

// Path returns the path of an object in the list of a path without a namespace.
func Path(list string, object *unstructured.Unstructured) string {
	folder, resource := path.Split(list)
	if object.GetNamespace() != "" {
		folder += "namespaces/" + object.GetNamespace() + "/"
	}
	return folder + resource + "/" + object.GetName()
}

var beta = regexp.MustCompile(`^/apis/[^/]+/v\d+beta\d+/`)

// Unserved reports whether an error means that a server does not serve the version in a path. Only betas come and go.
func Unserved(err error, path string) bool {
	return apierrors.IsNotFound(err) && beta.MatchString(path)
}

// Common returns what is in got and has a place in want: a newer version has more fields with defaults.
func Common(want, got any) any {
	switch got := got.(type) {
	case map[string]any:
		fields, ok := want.(map[string]any)
		if !ok {
			return got
		}
		part := map[string]any{}
		for name, value := range got {
			if field, known := fields[name]; known {
				part[name] = Common(field, value)
			}
		}
		return part
	case []any:
		items, ok := want.([]any)
		if !ok || len(items) != len(got) {
			return got
		}
		part := make([]any, len(got))
		for i := range got {
			part[i] = Common(items[i], got[i])
		}
		return part
	}
	return got
}
