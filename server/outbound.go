package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/spf13/pflag"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/egressselector"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/tracing"
	tracingapi "k8s.io/component-base/tracing/api/v1"

	"github.com/sqube/sqube/server/flagcheck"
)

// outbound is how the server connects to other processes, and where it sends spans.
type outbound struct {
	egress  *egressselector.EgressSelector // nil to connect directly
	objects *egressselector.EgressSelector // the same for what objects name, such as nodes and webhooks
	tracing tracing.TracerProvider         // never nil
	traced  bool                           // --tracing-config-file is given
}

// addOutboundFlags adds kube-apiserver's flags for connections to other processes.
func addOutboundFlags(cluster, debug *pflag.FlagSet, egress *genericoptions.EgressSelectorOptions, tracing *genericoptions.TracingOptions) {
	egress.AddFlags(cluster)
	cluster.Lookup("egress-selector-config-file").Usage = "File with an EgressSelectorConfiguration (apiserver.k8s.io/v1beta1): the proxies to kubelets, pods and Services (cluster), and to webhooks, OpenID and tracing by address (controlplane)."
	tracing.AddFlags(debug)
	debug.Lookup("tracing-config-file").Usage = "File with a TracingConfiguration (apiserver.config.k8s.io/v1): where to send OpenTelemetry spans of requests, down to the SQL statement, and for how many requests. If unset, no spans are sent."
}

// checkOutbound reads the files that the flags name.
func (o *Options) checkOutbound() error {
	var errs flagcheck.Problems
	if path := o.Egress.ConfigFile; path != "" {
		config, err := egressselector.ReadEgressSelectorConfiguration(path)
		if err == nil {
			err = egressselector.ValidateEgressSelectorConfiguration(config).ToAggregate()
		}
		errs.Unless(err == nil, "--egress-selector-config-file: %w", err)
	}
	if path := o.Tracing.ConfigFile; path != "" {
		config, err := genericoptions.ReadTracingConfiguration(path)
		if err == nil {
			err = tracingapi.ValidateTracingConfiguration(config, utilfeature.DefaultFeatureGate, nil).ToAggregate()
		}
		errs.Unless(err == nil, "--tracing-config-file: %w", err)
	}
	return errors.Join(errs...)
}

// newOutbound reads the files again and sets up connections and tracing. Every span has the server's id.
func newOutbound(o *Options, id string) (_ outbound, err error) {
	config := genericapiserver.Config{APIServerID: id, TracerProvider: tracing.NewNoopTracerProvider()}
	if o.Egress.ConfigFile != "" {
		if err := o.Egress.ApplyTo(&config); err != nil {
			return outbound{}, fmt.Errorf("--egress-selector-config-file: %w", err)
		}
	}
	dial := o.Dial
	if o.ReadOnly != "" {
		dial = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New(o.ReadOnly) }
	}
	if dial != nil {
		config.EgressSelector = egressselector.NewEgressSelectorWithMap(map[egressselector.EgressType]utilnet.DialFunc{
			egressselector.ControlPlane: dial, egressselector.Cluster: dial, egressselector.Etcd: dial,
		})
	}
	if err := o.Tracing.ApplyTo(config.EgressSelector, &config); err != nil {
		return outbound{}, fmt.Errorf("--tracing-config-file: %w", err)
	}
	made := outbound{config.EgressSelector, config.EgressSelector, config.TracerProvider, o.Tracing.ConfigFile != ""}
	if o.CopyOf != "" {
		made.objects, err = o.limited(config.EgressSelector)
	}
	return made, err
}

// close sends the remaining spans.
func (o outbound) close(ctx context.Context) {
	if err := o.tracing.Shutdown(ctx); err != nil {
		slog.Warn("the last spans could not be sent", "error", err)
	}
}
