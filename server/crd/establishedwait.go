package crd

import (
	"slices"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// establishedWait is how long upstream's handler delays the first creation of a custom resource after its definition is
// established, so that no server accepts an object that another one can't find yet.
const establishedWait = 2 * time.Second

// withoutWait makes a definition look as if that time had passed. A single server does not need to wait, and
// applying a definition together with its objects is two seconds faster.
func withoutWait(definition definition) (definition, error) {
	established := apihelpers.FindCRDCondition(definition, apiextensionsv1.Established)
	if established == nil || time.Since(established.LastTransitionTime.Time) >= establishedWait {
		return definition, nil
	}
	// The informer's object is shared, so the condition is changed in a copy that shares everything else.
	older := *definition
	older.Status.Conditions = slices.Clone(definition.Status.Conditions)
	apihelpers.FindCRDCondition(&older, apiextensionsv1.Established).LastTransitionTime = metav1.NewTime(time.Now().Add(-establishedWait))
	return &older, nil
}
