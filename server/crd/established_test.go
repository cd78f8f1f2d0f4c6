package crd_test

import (
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/harness"
)

// TestEstablishedAfterRestart starts on a definition whose names a server had accepted when it was stopped.
func TestEstablishedAfterRestart(t *testing.T) {
	const name = "things.example.com"
	s := startAfter(t, func(definitions clientset.Interface) {
		all := definitions.ApiextensionsV1().CustomResourceDefinitions()
		names := apiextensionsv1.CustomResourceDefinitionNames{Plural: "things", Singular: "thing", Kind: "Thing", ListKind: "ThingList"}
		d, err := all.Create(t.Context(), &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: "example.com", Scope: apiextensionsv1.NamespaceScoped, Names: names,
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
					Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}}}},
			},
		}, metav1.CreateOptions{})
		harness.Must(t, err)
		d.Status.AcceptedNames = names
		for kind, is := range map[apiextensionsv1.CustomResourceDefinitionConditionType]apiextensionsv1.ConditionStatus{
			apiextensionsv1.NamesAccepted: apiextensionsv1.ConditionTrue, apiextensionsv1.Established: apiextensionsv1.ConditionFalse,
		} {
			reason, message := "NoConflicts", "no conflicts found"
			if is == apiextensionsv1.ConditionFalse {
				reason, message = "Installing", "the initial names have been accepted"
			}
			d.Status.Conditions = append(d.Status.Conditions, apiextensionsv1.CustomResourceDefinitionCondition{Type: kind, Status: is, Reason: reason, Message: message})
		}
		_, err = all.UpdateStatus(t.Context(), d, metav1.UpdateOptions{})
		harness.Must(t, err)
	})
	harness.Eventually(t, name+" is established", func() bool {
		d, err := s.Informer().Lister().Get(name)
		return err == nil && apihelpers.IsCRDConditionTrue(d, apiextensionsv1.Established)
	})
}
