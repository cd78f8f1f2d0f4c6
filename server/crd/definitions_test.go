package crd

import (
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/harness"
)

// Upstream's handler sleeps while a definition has been established for less than establishedWait, so creating the first object
// does not wait if the handler sees an earlier time. The informer's own object must keep the real time.
func TestNoEstablishedWait(t *testing.T) {
	now := metav1.Now()
	definition := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{
			{Type: apiextensionsv1.NamesAccepted, LastTransitionTime: now},
			{Type: apiextensionsv1.Established, LastTransitionTime: now},
		}},
	}
	seen, err := withoutWait(definition)
	harness.Must(t, err)
	at := func(d *apiextensionsv1.CustomResourceDefinition, kind apiextensionsv1.CustomResourceDefinitionConditionType) time.Time {
		return apihelpers.FindCRDCondition(d, kind).LastTransitionTime.Time
	}
	if established := at(seen, apiextensionsv1.Established); time.Since(established) < establishedWait {
		t.Errorf("the handler sees the definition as established at %s, which is less than %s ago", established, establishedWait)
	}
	if accepted := at(seen, apiextensionsv1.NamesAccepted); !accepted.Equal(now.Time) {
		t.Errorf("another condition is from %s instead of %s", accepted, now)
	}
	if shared := at(definition, apiextensionsv1.Established); !shared.Equal(now.Time) {
		t.Errorf("the informer's object has changed: it is established at %s", shared)
	}
}
