package server

import (
	"errors"
	"sync"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	handlersmetrics "k8s.io/apiserver/pkg/endpoints/handlers/metrics"
	"k8s.io/apiserver/pkg/endpoints/metrics"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	flowcontrolmetrics "k8s.io/apiserver/pkg/util/flowcontrol/metrics"
	logsapi "k8s.io/component-base/logs/api/v1"
	metricsfeatures "k8s.io/component-base/metrics/features"
	"k8s.io/kubernetes/pkg/capabilities"
)

// setProcessGlobals sets the globals that upstream's code reads. It may be called once for each server in the process; the last
// call wins.
func setProcessGlobals(o *Options) error {
	// Neither affects registered metrics.
	metricsfeatures.ApplyFeatureGates(utilfeature.DefaultFeatureGate)
	o.Metrics.Apply()
	capabilities.Setup(o.AllowPrivileged, o.MaxConnectionBytesPerSec)
	limitPatches(o.MaxRequestBodyBytes)
	metrics.Register()
	handlersmetrics.Register()
	flowcontrolmetrics.Register()
	return registerMetrics()
}

var patchLimit sync.Mutex

// limitPatches limits what a JSON patch may copy to the maximum size of a request, like upstream.
func limitPatches(limit int64) {
	patchLimit.Lock()
	defer patchLimit.Unlock()
	if jsonpatch.AccumulatedCopySizeLimit != limit { // no write that would race with a running server
		jsonpatch.AccumulatedCopySizeLimit = limit
	}
}

// SetDefaultGates sets the defaults of the process's feature gates. Call it before any gate is set. It may be called more than once.
var SetDefaultGates = sync.OnceValue(func() error {
	gates := utilfeature.DefaultMutableFeatureGate
	return errors.Join(logsapi.AddFeatureGates(gates),
		// On by default, unlike in kube-apiserver: objects are never stored as CBOR, and only clients that request it get it.
		gates.OverrideDefault(features.CBORServingAndStorage, true))
})
