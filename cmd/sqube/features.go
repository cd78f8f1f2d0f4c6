package main

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"

	"github.com/sqube/sqube/server"
)

// featureGates is --feature-gates. Setting a deprecated gate logs a warning, but the log is set up only after all flags have been
// read. So the given gates are set in apply.
type featureGates struct {
	pflag.Value // Kubernetes' own
	given       []string
}

func (g *featureGates) addFlag(fs *pflag.FlagSet) {
	gates := utilfeature.DefaultMutableFeatureGate
	runtime.Must(server.SetDefaultGates())
	gates.AddFlag(fs)
	flag := fs.Lookup("feature-gates")
	g.Value, flag.Value = flag.Value, g
}

var component = regexp.MustCompile(`(^|,)\s*kube:`)

func (g *featureGates) Set(text string) error {
	g.given = append(g.given, text)
	return nil
}

// apply sets the gates and adds them to the metrics. An error names the gate.
func (g *featureGates) apply() error {
	log := logr.FromSlogHandler(slog.Default().Handler())
	for _, text := range g.given {
		text = component.ReplaceAllString(text, "$1") // kube-apiserver accepts the name of the component before a gate
		if err := g.Value.(featuregate.MutableFeatureGateWithLogger).SetWithLogger(log, text); err != nil {
			return fmt.Errorf("--feature-gates: %w", err)
		}
	}
	utilfeature.DefaultMutableFeatureGate.AddMetrics()
	return nil
}

// emulation has the flags that make a server behave like an older version, while other servers of its cluster are older.
type emulation struct {
	server *server.Options
	flags  *pflag.FlagSet
}

// addFlags adds kube-apiserver's flags, except --feature-gates, which featureGates adds.
func (e *emulation) addFlags(fs *pflag.FlagSet, o *server.Options) {
	e.server, e.flags = o, pflag.NewFlagSet("", pflag.ContinueOnError)
	compatibility.DefaultComponentGlobalsRegistry.AddFlags(e.flags)
	e.flags.BoolVar(&o.EmulationForwardCompatible, "emulation-forward-compatible", false, "Also serve newer versions of the APIs that --emulated-version has.")
	e.flags.BoolVar(&o.RuntimeConfigForwardCompatible, "runtime-config-emulation-forward-compatible", false, "Also serve APIs that --runtime-config names even if they are newer than --emulated-version.")
	e.flags.Lookup("emulated-version").Usage = "Kubernetes version whose APIs and features to emulate, such as 1.35. It can be at most three minor versions older than this one."
	e.flags.Lookup("min-compatibility-version").Usage = "Oldest Kubernetes version among the cluster's servers, such as 1.35. Objects are stored in versions that it supports. At most --emulated-version."
	for _, name := range []string{"emulated-version", "min-compatibility-version", "emulation-forward-compatible", "runtime-config-emulation-forward-compatible"} {
		fs.AddFlag(e.flags.Lookup(name))
	}
}

// apply sets the versions. Call it before the feature gates, whose defaults depend on them.
func (e *emulation) apply() error {
	registry := compatibility.DefaultComponentGlobalsRegistry
	version := registry.EffectiveVersionFor(basecompatibility.DefaultKubeComponent)
	if e.flags.Lookup("emulated-version").Changed || e.flags.Lookup("min-compatibility-version").Changed {
		err := registry.Set()
		if err == nil {
			err = errors.Join(version.Validate()...)
		}
		if err != nil {
			return fmt.Errorf("--emulated-version, --min-compatibility-version: %w", err)
		}
	}
	registry.AddMetrics()
	if (e.server.EmulationForwardCompatible || e.server.RuntimeConfigForwardCompatible) && version.BinaryVersion().WithPatch(0).EqualTo(version.EmulationVersion()) {
		return errors.New("--emulation-forward-compatible and --runtime-config-emulation-forward-compatible need an --emulated-version older than this version")
	}
	return nil
}
