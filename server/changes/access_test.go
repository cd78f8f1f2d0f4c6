package changes

import (
	"context"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/sqube/sqube/test/harness"
)

// TestRights asks for each object once, and for its name only if the resource is not allowed as a whole.
func TestRights(t *testing.T) {
	var asked []string
	decide := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		asked = append(asked, a.GetVerb()+" "+a.GetResource()+" "+a.GetNamespace()+"/"+a.GetName())
		if a.GetResource() == "pods" || a.GetName() == "mine" {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	})
	r := (&Log{Authorizer: decide}).rightsOf(&user.DefaultInfo{Name: "jane"})
	for range 2 {
		for _, test := range []struct {
			resource, namespace, name string
			want                      bool
		}{
			{"pods", "shop", "a", true}, {"secrets", "shop", "a", false}, {"secrets", "shop", "mine", true}, {"namespaces", "", "shop", false},
		} {
			got, err := r.mayGet(t.Context(), schema.GroupResource{Resource: test.resource}, test.namespace, test.name)
			if err != nil || got != test.want {
				t.Errorf("%+v: %v, %v", test, got, err)
			}
		}
	}
	want := []string{
		"get pods shop/", "get secrets shop/", "get secrets shop/a", "get secrets shop/mine", "get namespaces shop/", "get namespaces shop/shop",
	}
	if !slices.Equal(asked, want) {
		t.Errorf("it asks %q", asked)
	}
}

// TestPaths selects changed fields by themselves, by what is above them, and by what was added or removed with them.
func TestPaths(t *testing.T) {
	changed := []string{".spec.template.spec.containers[name=web].image", ".metadata.labels"}
	for path, want := range map[string]bool{
		".spec": true, ".spec.template.spec.containers": true, `.spec.template.spec.containers[name\=web].image`: true, ".spec.temp": false,
		".metadata.labels.app": true, ".metadata.labelsX": false, ".status": false,
	} {
		selector, err := fields.ParseSelector("field=" + path)
		harness.Must(t, err)
		s, err := Select(selector, time.Now())
		if err != nil || s.matchesPaths(changed) != want {
			t.Errorf("%s: want %v, %v", path, want, err)
		}
	}
}
