package openapi

import (
	"context"
	"encoding/json"
	"runtime"
	"slices"
	"testing"
	"time"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/validation/spec"
	kubectl "k8s.io/kubectl/pkg/util/openapi"

	"github.com/sqube/sqube/test/harness"
)

type definitions []definition

func (d definitions) list() []definition { return d }

func (d definitions) whole(_ context.Context, name string) (definition, error) {
	for _, found := range d {
		if found.Name == name {
			return found, nil
		}
	}
	return nil, apierrors.NewNotFound(apiextensionsv1.Resource("customresourcedefinitions"), name)
}

// crd makes a definition that is served as v1 and v2 and has all subresources.
func crd(plural, kind string) *apiextensionsv1.CustomResourceDefinition {
	version := func(name string) apiextensionsv1.CustomResourceDefinitionVersion {
		return apiextensionsv1.CustomResourceDefinitionVersion{
			Name: name, Served: true, Storage: name == "v1",
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Type: "object",
				Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": {
					Type: "object",
					Properties: map[string]apiextensionsv1.JSONSchemaProps{"color": {
						Type: "string", Description: "what it looks like", Default: &apiextensionsv1.JSON{Raw: []byte(`"red"`)},
					}},
				}},
			}},
			Subresources: &apiextensionsv1.CustomResourceSubresources{
				Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
				Scale:  &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas"},
			},
		}
	}
	d := &apiextensionsv1.CustomResourceDefinition{}
	d.Name, d.UID, d.Generation = plural+".example.com", types.UID(plural), 1
	d.Spec = apiextensionsv1.CustomResourceDefinitionSpec{
		Group:    "example.com",
		Scope:    apiextensionsv1.NamespaceScoped,
		Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: kind, ListKind: kind + "List"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{version("v1"), version("v2")},
	}
	return d
}

// TestV2WithFewBuiltIns checks that everything that custom resources refer to is in the document, even if no built-in part has it.
func TestV2WithFewBuiltIns(t *testing.T) {
	s := newService(t, nil, definitions{crd("widgets", "Widget"), crd("gears", "Gear")})
	doc := v2Document(t, s)
	resolve(t, doc, doc)
}

func TestKubectlUnderstandsV2(t *testing.T) {
	s := newService(t, everything(t), definitions{crd("widgets", "Widget")})
	_, message := fetch(t, s, PathV2, "Accept", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
	document := &openapi_v2.Document{}
	harness.Must(t, proto.Unmarshal(message, document))
	resources, err := kubectl.NewOpenAPIData(document)
	harness.Must(t, err)
	for _, kind := range []schema.GroupVersionKind{
		{Group: "example.com", Version: "v1", Kind: "Widget"}, {Group: "apps", Version: "v1", Kind: "Deployment"},
	} {
		if resources.LookupResource(kind) == nil {
			t.Errorf("no schema for %v", kind)
		}
	}
	if types := resources.GetConsumes(schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, "PATCH"); !slices.Contains(types, "application/apply-patch+yaml") {
		t.Errorf("pods can be patched as %v", types)
	}
}

func TestRenderedDocumentsAreForgotten(t *testing.T) {
	s := newService(t, everything(t), definitions{crd("widgets", "Widget")})
	s.rendered = newCache(time.Millisecond)
	fetch(t, s, PathV2)
	fetch(t, s, PathV3+"/apis/example.com/v1")
	for deadline := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
		s.rendered.lock.Lock()
		kept := len(s.rendered.entries)
		s.rendered.lock.Unlock()
		if kept == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d documents are still in memory", kept)
		}
	}
}

// TestOverlap compares the published document with upstream's for definitions that overlap with built-in resources.
func TestOverlap(t *testing.T) {
	same := crd("roles", "Role")
	same.Spec.Group = "rbac.authorization.k8s.io" // whose v1 has roles; v2 is custom
	alike := crd("deployments", "Deployment")
	alike.Spec.Group = "apps.api.k8s.io" // so the definition is also named io.k8s.api.apps.v1.Deployment
	builtIn := []schema.GroupVersion{{Group: "rbac.authorization.k8s.io", Version: "v1"}, {Group: "apps", Version: "v1"}}
	for name, d := range map[string]definition{"the same path": same, "the same definition": alike} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, builtIn, definitions{d})
			static, err := s.builtinV2()
			harness.Must(t, err)
			var custom []*spec.Swagger
			for _, v := range d.Spec.Versions {
				doc, err := builder.BuildOpenAPIV2(d, v.Name, options(true))
				harness.Must(t, err)
				doc.Definitions = handler.PruneDefaults(doc.Definitions)
				custom = append(custom, doc)
			}
			merged, err := builder.MergeSpecs(static, custom...)
			harness.Must(t, err)
			text, err := merged.MarshalJSON()
			harness.Must(t, err)
			var want map[string]any
			harness.Must(t, json.Unmarshal(text, &want))
			got := v2Document(t, s)
			resolve(t, got, got)
			for _, section := range []string{"paths", "definitions"} {
				wanted, published := want[section].(map[string]any), got[section].(map[string]any)
				for name := range published {
					if _, ok := wanted[name]; !ok {
						t.Errorf("%s has an unexpected %s", section, name)
					}
				}
				for name, value := range wanted {
					if _, ok := published[name]; !ok {
						t.Errorf("%s lacks %s", section, name)
					}
					if _, builtin := static.Definitions[name]; !builtin && section == "definitions" {
						compare(t, name, value, published[name])
					}
				}
			}
		})
	}
}
