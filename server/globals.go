package server

import (
	"sync"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	handlersmetrics "k8s.io/apiserver/pkg/endpoints/handlers/metrics"
	"k8s.io/apiserver/pkg/endpoints/metrics"
	flowcontrolmetrics "k8s.io/apiserver/pkg/util/flowcontrol/metrics"
	"k8s.io/kubernetes/pkg/capabilities"
	"k8s.io/kubernetes/pkg/serviceaccount"
)

// setProcessGlobals sets what upstream reads from globals. It may be called once for each server in the process; the last call
// wins.
func setProcessGlobals(o *Options) error {
	o.Metrics.Apply() // does not change what is registered
	capabilities.Setup(o.AllowPrivileged, o.MaxConnectionBytesPerSec)
	limitPatches(o.MaxRequestBodyBytes)
	serviceaccount.RegisterMetrics()
	metrics.Register()
	handlersmetrics.Register()
	flowcontrolmetrics.Register()
	return registerMetrics()
}

var patchLimit sync.Mutex

// limitPatches lets a JSON patch copy no more than a request may hold, like upstream.
func limitPatches(limit int64) {
	patchLimit.Lock()
	defer patchLimit.Unlock()
	if jsonpatch.AccumulatedCopySizeLimit != limit { // a server that is running must not see a write
		jsonpatch.AccumulatedCopySizeLimit = limit
	}
}
