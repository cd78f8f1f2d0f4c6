package crd_test

import (
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sqube/sqube/server/crd"
	"github.com/sqube/sqube/test/harness"
)

// TestReservedGroups refuses definitions in sqube's own API groups, does not serve one that is stored already, says so, and lets it be deleted.
func TestReservedGroups(t *testing.T) {
	stored := parse[apiextensionsv1.CustomResourceDefinition](t, strings.ReplaceAll(widgets, "example.com", "shop.sqube.io"))
	stored.UID, stored.CreationTimestamp = "u", metav1.Now()
	stored.Status = apiextensionsv1.CustomResourceDefinitionStatus{AcceptedNames: stored.Spec.Names, StoredVersions: []string{"v1"}}
	for _, condition := range []apiextensionsv1.CustomResourceDefinitionConditionType{apiextensionsv1.NamesAccepted, apiextensionsv1.Established} {
		stored.Status.Conditions = append(stored.Status.Conditions, apiextensionsv1.CustomResourceDefinitionCondition{Type: condition, Status: apiextensionsv1.ConditionTrue})
	}
	s := start(t, func(c *crd.Config) {
		group, err := crd.NewGroup(c.Storage)
		harness.Must(t, err)
		rest := group.VersionedResourcesStorageMap["v1"]["customresourcedefinitions"].(*customresourcedefinition.REST)
		internal := &apiextensions.CustomResourceDefinition{}
		harness.Must(t, apiserver.Scheme.Convert(stored, internal, nil))
		key, err := rest.KeyFunc(t.Context(), stored.Name)
		harness.Must(t, err)
		harness.Must(t, rest.Storage.Create(t.Context(), key, internal, &apiextensions.CustomResourceDefinition{}, 0, false))
	})
	definitions := s.definitions.ApiextensionsV1().CustomResourceDefinitions()
	for _, group := range []string{"sqube.io", "a.b.sqube.io"} {
		_, err := definitions.Create(t.Context(), parse[apiextensionsv1.CustomResourceDefinition](t, strings.ReplaceAll(widgets, "example.com", group)), metav1.CreateOptions{})
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.group") || !strings.Contains(err.Error(), "reserved for sqube") {
			t.Errorf("creating a definition in %s: %v", group, err)
		}
	}
	_, err := definitions.Patch(t.Context(), stored.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
	if !apierrors.IsInvalid(err) {
		t.Errorf("updating a definition in shop.sqube.io: %v", err)
	}
	harness.Eventually(t, "its status says that it is not served", func() bool {
		d, err := definitions.Get(t.Context(), stored.Name, metav1.GetOptions{})
		harness.Must(t, err)
		said := apihelpers.FindCRDCondition(d, "Served")
		return said != nil && said.Status == apiextensionsv1.ConditionFalse && strings.Contains(said.Message, "reserved for sqube")
	})
	resource := widgetsV1
	resource.Group = "shop.sqube.io"
	if list, err := s.objects.Resource(resource).List(t.Context(), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("its objects are served: %v, %v", list, err)
	}
	if groups, err := s.definitions.Discovery().ServerGroups(); err != nil || strings.Contains(groups.String(), "shop.sqube.io") {
		t.Errorf("the groups are %v, %v", groups, err)
	}
	harness.Must(t, definitions.Delete(t.Context(), stored.Name, metav1.DeleteOptions{}))
	harness.Eventually(t, "it is deleted", func() bool {
		_, err := definitions.Get(t.Context(), stored.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}
