package server

import (
	"errors"
	"sync"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	customresourcevalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiserver/pkg/authorization/cel"
	authorizationmetrics "k8s.io/apiserver/pkg/authorization/metrics"
	handlersmetrics "k8s.io/apiserver/pkg/endpoints/handlers/metrics"
	"k8s.io/apiserver/pkg/endpoints/metrics"
	"k8s.io/apiserver/pkg/features"
	authenticationconfigmetrics "k8s.io/apiserver/pkg/server/options/authenticationconfig/metrics"
	authorizationconfigmetrics "k8s.io/apiserver/pkg/server/options/authorizationconfig/metrics"
	etcd3metrics "k8s.io/apiserver/pkg/storage/etcd3/metrics"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	flowcontrolmetrics "k8s.io/apiserver/pkg/util/flowcontrol/metrics"
	proxymetrics "k8s.io/apiserver/pkg/util/proxy/metrics"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"
	webhookmetrics "k8s.io/apiserver/plugin/pkg/authorizer/webhook/metrics"
	logsapi "k8s.io/component-base/logs/api/v1"
	metricsfeatures "k8s.io/component-base/metrics/features"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // registers the metrics of clients, informers and leader election
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"
	_ "k8s.io/component-base/metrics/prometheus/version" // registers kubernetes_build_info
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
	for _, register := range []func(){
		metrics.Register, handlersmetrics.Register, flowcontrolmetrics.Register, etcd3metrics.Register, proxymetrics.Register,
		authenticationconfigmetrics.RegisterMetrics, authorizationconfigmetrics.RegisterMetrics, oidc.RegisterMetrics,
		authorizationmetrics.RegisterMetrics, cel.RegisterMetrics, webhookmetrics.RegisterWebhookMetrics, controllersmetrics.Register,
		customresourcevalidation.RegisterMetrics,
	} {
		register()
	}
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
