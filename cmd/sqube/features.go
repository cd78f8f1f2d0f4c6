package main

import (
	"fmt"
	"log/slog"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"
)

// featureGates is --feature-gates. Gates that will be gone in another version are told of in the log, which has its form
// only when all flags have been read; therefore what is given takes effect in apply.
type featureGates struct {
	pflag.Value // Kubernetes' own
	given       []string
}

func (g *featureGates) addFlag(fs *pflag.FlagSet) {
	gates := utilfeature.DefaultMutableFeatureGate
	runtime.Must(logsapi.AddFeatureGates(gates))
	// On by default, unlike in kube-apiserver: nothing is stored as CBOR here, and clients have to ask for it.
	runtime.Must(gates.OverrideDefault(features.CBORServingAndStorage, true))
	gates.AddFlag(fs)
	flag := fs.Lookup("feature-gates")
	g.Value, flag.Value = flag.Value, g
}

// Set implements pflag.Value.
func (g *featureGates) Set(text string) error {
	g.given = append(g.given, text)
	return nil
}

// apply sets the gates, and shows them in the metrics. An error names the gate.
func (g *featureGates) apply() error {
	log := logr.FromSlogHandler(slog.Default().Handler())
	for _, text := range g.given {
		if err := g.Value.(featuregate.MutableFeatureGateWithLogger).SetWithLogger(log, text); err != nil {
			return fmt.Errorf("--feature-gates: %w", err)
		}
	}
	utilfeature.DefaultMutableFeatureGate.AddMetrics()
	return nil
}
