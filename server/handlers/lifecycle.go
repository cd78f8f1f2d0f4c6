package handlers

import (
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/deprecation"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/apiserver/pkg/warning"
	basecompatibility "k8s.io/component-base/compatibility"
)

// lifecycle is the deprecation of a kind: clients are warned, and its use is counted (KEP-1693).
type lifecycle struct {
	deprecated     bool
	removedRelease string // the first release without the kind, if known
	warning        string
}

// newLifecycle looks up the kind's lifecycle as of the Kubernetes version that this server serves.
func newLifecycle(scheme *runtime.Scheme, kind schema.GroupVersionKind) (lifecycle, error) {
	object, err := scheme.New(kind)
	if err != nil {
		return lifecycle{}, fmt.Errorf("finding the type of %s: %w", kind, err)
	}
	object.GetObjectKind().SetGroupVersionKind(kind)
	served := compatibility.DefaultComponentGlobalsRegistry.EffectiveVersionFor(basecompatibility.DefaultKubeComponent).EmulationVersion()
	if !deprecation.IsDeprecated(object, int(served.Major()), int(served.Minor())) {
		return lifecycle{}, nil
	}
	return lifecycle{
		deprecated:     true,
		removedRelease: deprecation.RemovedRelease(object),
		warning:        deprecation.WarningMessage(object),
	}, nil
}

// wrap adds the warning, if any, to every response of the handler.
func (l lifecycle) wrap(handler http.HandlerFunc) http.HandlerFunc {
	if !l.deprecated {
		return handler
	}
	return func(w http.ResponseWriter, r *http.Request) {
		warning.AddWarning(r.Context(), "", l.warning)
		handler(w, r)
	}
}
