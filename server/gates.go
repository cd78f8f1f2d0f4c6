package server

import (
	"errors"
	"sync"

	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	logsapi "k8s.io/component-base/logs/api/v1"
)

// SetDefaultGates sets the defaults of the process's feature gates. Call it before any gate is set. It may be called more than once.
var SetDefaultGates = sync.OnceValue(func() error {
	gates := utilfeature.DefaultMutableFeatureGate
	return errors.Join(logsapi.AddFeatureGates(gates),
		// On by default, unlike in kube-apiserver: nothing is stored as CBOR, and only clients that request it get it.
		gates.OverrideDefault(features.CBORServingAndStorage, true))
})
