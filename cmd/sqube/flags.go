package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cliflag "k8s.io/component-base/cli/flag"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	kubefeatures "k8s.io/kubernetes/pkg/features"

	"github.com/sqube/sqube/server"
)

// helpWidth is the width of the help in columns.
const helpWidth = 100

// useSections adds the flags of all sections to cmd, and shows them by section in its help: serve has too many for one list.
// Names may have _ for -, like those of kube-apiserver's flags.
func useSections(cmd *cobra.Command, sections *cliflag.NamedFlagSets) {
	for _, name := range sections.Order {
		section := sections.FlagSets[name]
		section.SortFlags = false
		section.VisitAll(func(f *pflag.Flag) { f.Hidden = f.Hidden || f.Deprecated != "" })
		cmd.Flags().AddFlagSet(section)
	}
	cmd.Flags().SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	cmd.Flags().SetOutput(io.Discard) // pflag would report deprecated flags here, in a different format from the log: see warnDeprecated
	cliflag.SetUsageAndHelpFunc(cmd, *sections, helpWidth)
}

// warnDeprecated logs which deprecated flags were given.
func warnDeprecated(fs *pflag.FlagSet) {
	fs.Visit(func(f *pflag.Flag) {
		if f.Deprecated != "" {
			slog.Warn("a flag is deprecated", "flag", "--"+f.Name, "hint", f.Deprecated)
		}
	})
}

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
		// Addresses of Services are only objects, even in versions that also wrote etcd's bitmap.
		if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(map[string]bool{string(kubefeatures.DisableAllocatorDualWrite): true}); err != nil {
			return fmt.Errorf("--emulated-version: %w", err)
		}
	}
	registry.AddMetrics()
	if (e.server.EmulationForwardCompatible || e.server.RuntimeConfigForwardCompatible) && version.BinaryVersion().WithPatch(0).EqualTo(version.EmulationVersion()) {
		return errors.New("--emulation-forward-compatible and --runtime-config-emulation-forward-compatible need an --emulated-version older than this version")
	}
	return nil
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

// ignoredFlags are flags of kube-apiserver that do nothing here. They are accepted, so that unit files and manifests written for
// kube-apiserver start sqube too, with a warning that says what to use instead. Values that request something that sqube does not do
// are rejected.
var ignoredFlags = []ignoredFlag{
	{names: "etcd-servers etcd-servers-overrides etcd-prefix",
		reason: "the state is in --datastore; sqube import reads the state of an etcd"},
	{names: "etcd-cafile etcd-certfile etcd-keyfile",
		reason: "--datastore sets TLS to Postgres with sslmode, sslrootcert, sslcert and sslkey"},
	{names: "etcd-compaction-interval",
		reason: "--retention and --compact-interval set how long old versions are kept"},
	{names: "etcd-healthcheck-timeout etcd-readycheck-timeout storage-initialization-timeout",
		reason: "--datastore-timeout limits every wait for the database"},
	{names: "etcd-count-metric-poll-period etcd-db-metric-poll-interval",
		reason: "the metrics sqube_store_… need no polling"},
	{names: "lease-reuse-duration-seconds", reason: "there are no etcd leases; --event-ttl sets how long Events are kept"},
	{names: "storage-backend", only: []string{"", "etcd3"}, reason: "--datastore selects the database"},
	{names: "storage-media-type", only: []string{"application/vnd.kubernetes.protobuf", "application/json", "application/cbor"},
		reason: "objects are stored as JSON, and sent in the format that the client asks for"},
	{names: "watch-cache", boolean: true, reason: "watches and lists have no cache that could be turned off"},
	{names: "watch-cache-sizes default-watch-cache-size", reason: "watches and lists need no such cache; --retention sets how far back a watch can start"},
	{names: "enable-garbage-collector", boolean: true, only: []string{"true"}, reason: "the garbage collector runs in this process; --controllers can turn it off"},
	{names: "enable-logs-handler", boolean: true, only: []string{"false"}, reason: "the log goes to standard error, and no path serves it"},
	{names: "apiserver-count", reason: "servers find each other in the database"},
	{names: "kubelet-timeout", reason: "--request-timeout also limits requests to kubelets"},
	{names: "peer-ca-file peer-advertise-ip peer-advertise-port", only: []string{""},
		reason: "servers do not forward requests to each other"},
	{names: "log-flush-frequency log-text-info-buffer-size log-json-info-buffer-size", reason: "every log line is written at once"},
	{names: "log-text-split-stream log-json-split-stream", boolean: true, only: []string{"false"},
		reason: "the whole log goes to standard error"},
}

// ignoredFlag is one or more flags that do nothing, for the same reason.
type ignoredFlag struct {
	names   string   // separated by spaces
	only    []string // the accepted values; nil for any
	reason  string   // why they do nothing, or what to use instead
	boolean bool
}

// ignoredFlagSet records which of these flags were given.
type ignoredFlagSet struct {
	flags  *pflag.FlagSet
	silent bool // accept all values, without a warning
}

// value returns the value of one of these flags.
func (c *ignoredFlagSet) value(name string) string { return c.flags.Lookup(name).Value.String() }

// addFlags adds these flags to fs, hidden from help.
func (c *ignoredFlagSet) addFlags(fs *pflag.FlagSet) {
	c.flags = pflag.NewFlagSet("compatibility", pflag.ContinueOnError)
	for _, idle := range ignoredFlags {
		for _, name := range strings.Fields(idle.names) {
			if idle.boolean {
				c.flags.Bool(name, false, idle.reason)
			} else {
				c.flags.String(name, "", idle.reason)
			}
			c.flags.Lookup(name).Hidden = true
		}
	}
	fs.AddFlagSet(c.flags)
}

// check logs a warning about the given flags, once for each reason. It returns an error that names flags with unsupported values.
func (c *ignoredFlagSet) check() error {
	if c.silent {
		return nil
	}
	var errs []error
	for _, idle := range ignoredFlags {
		var given []string
		for _, name := range strings.Fields(idle.names) {
			flag := c.flags.Lookup(name)
			switch {
			case !flag.Changed:
			case !idle.accepts(flag.Value.String()):
				errs = append(errs, fmt.Errorf("--%s=%s is not supported: %s", name, flag.Value, idle.reason))
			default:
				given = append(given, "--"+name)
			}
		}
		if len(given) > 0 {
			slog.Warn("a flag of kube-apiserver has no effect here", "flag", strings.Join(given, ","), "because", idle.reason)
		}
	}
	return errors.Join(errs...)
}

func (f ignoredFlag) accepts(value string) bool {
	return f.only == nil || slices.Contains(f.only, value)
}
