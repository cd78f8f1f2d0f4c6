package server

import (
	"errors"
	"sync"

	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	logsapi "k8s.io/component-base/logs/api/v1"
)

// SetDefaultGates prepares the feature gates of the process, before the first of them is set. It may be called more than once.
var SetDefaultGates = sync.OnceValue(func() error {
	gates := utilfeature.DefaultMutableFeatureGate
	return errors.Join(logsapi.AddFeatureGates(gates),
		// On by default, unlike in kube-apiserver: nothing is stored as CBOR here, and clients have to ask for it.
		gates.OverrideDefault(features.CBORServingAndStorage, true))
})
