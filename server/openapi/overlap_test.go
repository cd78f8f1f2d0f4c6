package openapi

import (
	"encoding/json"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// TestOverlap compares the published document with upstream's for definitions that overlap with built-in resources.
func TestOverlap(t *testing.T) {
	same := crd("roles", "Role")
	same.Spec.Group = "rbac.authorization.k8s.io" // whose v1 has roles; v2 is custom
	alike := crd("deployments", "Deployment")
	alike.Spec.Group = "apps.api.k8s.io" // so the definition is also named io.k8s.api.apps.v1.Deployment
	for name, d := range map[string]definition{"the same path": same, "the same definition": alike} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, everything(t), definitions{d})
			static, err := s.builtinV2()
			if err != nil {
				t.Fatal(err)
			}
			var custom []*spec.Swagger
			for _, v := range d.Spec.Versions {
				doc, err := builder.BuildOpenAPIV2(d, v.Name, options(true))
				if err != nil {
					t.Fatal(err)
				}
				doc.Definitions = handler.PruneDefaults(doc.Definitions)
				custom = append(custom, doc)
			}
			merged, err := builder.MergeSpecs(static, custom...)
			if err != nil {
				t.Fatal(err)
			}
			text, err := merged.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			var want map[string]any
			if err := json.Unmarshal(text, &want); err != nil {
				t.Fatal(err)
			}
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
