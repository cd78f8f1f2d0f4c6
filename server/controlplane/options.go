package controlplane

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/klog/v2"
	managerv1alpha1 "k8s.io/kube-controller-manager/config/v1alpha1"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/config"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	scheduleroptions "k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	managerconfig "k8s.io/kubernetes/pkg/controller/apis/config"
	managerscheme "k8s.io/kubernetes/pkg/controller/apis/config/scheme"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/validation"
	netutils "k8s.io/utils/net"
	"sigs.k8s.io/yaml"

	"github.com/sqube/sqube/server/controllers"
	"github.com/sqube/sqube/server/flagcheck"
)

// Options are the flags. Those of kube-controller-manager have the same names.
type Options struct {
	// All is --control-plane.
	All bool
	// Scheduler is --scheduler.
	Scheduler bool

	virtual                    bool // in a bubble of testing/synctest
	simulation                 Simulation
	managerFile, schedulerFile string
	added, upstream            *pflag.FlagSet // all flags, and those of kube-controller-manager
	users                      map[string][]string

	manager   *managerconfig.KubeControllerManagerConfiguration // nil if nothing differs from upstream's defaults
	scheduler *schedulerconfig.KubeSchedulerConfiguration
}

// AddFlags adds the flags to fs.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.All, "control-plane", false, "Run the whole control plane in this process: the API, kube-controller-manager's controllers and kube-scheduler. The same as --controllers='*' --scheduler --enable-bootstrap-token-auth. If several servers share a database, one of them runs the controllers and the scheduler.")
	fs.BoolVar(&o.Scheduler, "scheduler", false, "Run kube-scheduler in this process, while no kube-scheduler elsewhere holds its Lease.")
	fs.StringVar(&o.managerFile, "controller-manager-config", "", "File with a KubeControllerManagerConfiguration (kubecontrollermanager.config.k8s.io/v1alpha1) for the controllers in this process. Flags override it; its section generic has no effect.")
	fs.StringVar(&o.schedulerFile, "scheduler-config", "", "File with a KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1) for the scheduler in this process: profiles, plugins, extenders. Its leader election and client connection have no effect.")
	defaults, err := managerDefaults()
	if err != nil {
		panic(err) // upstream's own defaults
	}
	o.added = fs
	o.upstream, o.users = managerFlags(defaults)
	fs.AddFlagSet(o.upstream)
}

// Complete checks the flags and reads the files. selection is that of --controllers, serviceRange that of
// --service-cluster-ip-range.
func (o *Options) Complete(selection []string, serviceRange string) error {
	if o.All && !o.added.Changed("scheduler") {
		o.Scheduler = true
	}
	others := o.Controllers()
	controlled := controllers.Selects(selection, others)
	any := controlled || controllers.Runs(selection, nil, controllers.Names()...)
	var errs flagcheck.Problems
	configured := o.managerFile != ""
	o.upstream.VisitAll(func(f *pflag.Flag) {
		users := o.users[f.Name]
		if !f.Changed {
			return
		}
		configured = true
		if !controllers.Runs(selection, others, users...) && !(len(users) == 0 && any) {
			errs = append(errs, unused(f.Name, users))
		}
	})
	if o.managerFile != "" && !any {
		errs = append(errs, unused("controller-manager-config", nil))
	}
	errs.Unless(o.schedulerFile == "" || o.Scheduler, "--scheduler-config has no effect without --control-plane or --scheduler")
	if controlled || configured && len(errs) == 0 {
		errs = append(errs, o.completeManager(serviceRange))
	}
	if o.Scheduler {
		errs = append(errs, o.completeScheduler())
	}
	return errors.Join(errs...)
}

// Settings returns the settings of all controllers from flags and file; nil for upstream's defaults. Call it after Complete.
func (o *Options) Settings() *controllers.Settings { return o.manager }

// managerDefaults returns kube-controller-manager's defaults, with a service account for each controller as in a kubeadm cluster.
func managerDefaults() (*options.KubeControllerManagerOptions, error) {
	defaults, err := options.NewKubeControllerManagerOptions()
	if err == nil {
		defaults.KubeCloudShared.UseServiceAccountCredentials = true
	}
	return defaults, err
}

// completeManager computes the configuration of the controllers, like kube-controller-manager.
func (o *Options) completeManager(serviceRange string) error {
	effective, err := managerDefaults()
	if err != nil {
		return err
	}
	effective.SecureServing.BindPort = 0 // there is no port
	// The process has set versions and gates; upstream would set them again.
	settled := basecompatibility.NewComponentGlobalsRegistry()
	if err := settled.Set(); err != nil {
		return err
	}
	effective.ComponentGlobalsRegistry = settled
	flags, _ := managerFlags(effective)
	known, off, aliases := app.KnownControllers(), app.ControllersDisabledByDefault(), app.ControllerAliases()
	if o.managerFile != "" {
		defaults := &config.Config{}
		if err := effective.ApplyTo(defaults, known, off, aliases); err != nil {
			return err
		}
		read, err := readManagerConfig(o.managerFile, &defaults.ComponentConfig)
		if err != nil {
			return fmt.Errorf("--controller-manager-config: %w", err)
		}
		apply(read, effective)
	}
	o.upstream.VisitAll(func(given *pflag.Flag) {
		if given.Changed {
			err = errors.Join(err, set(flags.Lookup(given.Name).Value, given.Value))
		}
	})
	if err != nil {
		return err
	}
	effective.NodeIPAMController.ServiceCIDR = serviceRange
	if err := effective.Validate(known, off, aliases); err != nil {
		return err
	}
	completed := &config.Config{}
	if err := effective.ApplyTo(completed, known, off, aliases); err != nil {
		return err
	}
	o.manager = &completed.ComponentConfig
	return checkRanges(o.manager.KubeCloudShared.AllocateNodeCIDRs, o.manager.KubeCloudShared.ClusterCIDR)
}

// set sets a flag to the value of another flag of the same type.
func set(flag, value pflag.Value) error {
	if list, ok := value.(pflag.SliceValue); ok {
		return flag.(pflag.SliceValue).Replace(list.GetSlice())
	}
	return flag.Set(value.String())
}

// checkRanges checks --cluster-cidr like the controller that allocates from it, which would otherwise fail when it starts.
func checkRanges(allocate bool, ranges string) error {
	if !allocate {
		return nil
	}
	cidrs, err := netutils.ParseCIDRs(strings.Split(strings.TrimSpace(ranges), ","))
	if err == nil && len(cidrs) > 1 {
		var dual bool
		if dual, err = netutils.IsDualStackCIDRs(cidrs); err == nil && (!dual || len(cidrs) > 2) {
			err = errors.New("there are two of one IP family")
		}
	}
	if err != nil {
		return fmt.Errorf("--cluster-cidr %q must be a CIDR such as 10.244.0.0/16, or two of different IP families separated by a comma, for --allocate-node-cidrs: %w", ranges, err)
	}
	return nil
}

// notHere are flags in the sections of managerFlags that have no effect here: they configure the server or cloud providers, or turn on
// something that the server's informers do not do.
var notHere = []string{
	"allow-untagged-cloud", "cloud-config", "cloud-provider", "cluster-name", "concurrent-service-syncs", "configure-cloud-routes",
	"enable-garbage-collector", "external-cloud-volume-plugin", "namespace-sync-period", "node-sync-period", "root-ca-file",
	"route-reconciliation-period", "service-account-private-key-file", "service-cluster-ip-range",
}

// usedBy has the controllers of flags that differ from those of the rest of their section. An empty list means all controllers.
var usedBy = map[string][]string{
	"flex-volume-plugin-dir": {
		names.PersistentVolumeBinderController, names.PersistentVolumeAttachDetachController, names.PersistentVolumeExpanderController,
	},
	"node-monitor-period":                   {names.NodeLifecycleController},
	"concurrent-serviceaccount-token-syncs": {names.ServiceAccountTokenController},
	"use-service-account-credentials":       nil,
}

// managerFlags returns the flags of kube-controller-manager that have an effect here, bound to the options, and the controllers of each.
func managerFlags(o *options.KubeControllerManagerOptions) (flags *pflag.FlagSet, users map[string][]string) {
	flags, users = pflag.NewFlagSet("", pflag.ContinueOnError), map[string][]string{}
	flags.SetNormalizeFunc(cliflag.WordSepNormalizeFunc) // upstream has a concurrent_rc_syncs
	known, registry := app.KnownControllers(), o.ComponentGlobalsRegistry
	o.ComponentGlobalsRegistry = basecompatibility.NewComponentGlobalsRegistry() // the process has flags for the other one
	sections := o.Flags(known, nil, nil)
	o.ComponentGlobalsRegistry = registry
	// Upstream has these in a section with flags of the program.
	shared := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.KubeCloudShared.AddFlags(shared)
	sections.FlagSets[names.NodeIpamController].AddFlagSet(shared)
	for _, name := range sections.Order {
		if !slices.Contains(known, name) {
			continue
		}
		sections.FlagSets[name].VisitAll(func(f *pflag.Flag) {
			if f.Deprecated != "" || slices.Contains(notHere, f.Name) {
				return
			}
			flags.AddFlag(f)
			users[f.Name] = []string{name}
			if others, ok := usedBy[f.Name]; ok {
				users[f.Name] = others
			}
		})
	}
	return flags, users
}

// unused returns the error for a flag if none of its controllers runs.
func unused(flag string, controllers []string) error {
	needed := "a controller that uses it"
	if len(controllers) > 0 {
		needed = strings.Join(controllers, " or ")
	}
	return fmt.Errorf("--%s has no effect without %s: see --control-plane and --controllers", flag, needed)
}

// readManagerConfig reads a KubeControllerManagerConfiguration. Missing fields get the values of defaults, which include those of
// flags. Unknown fields are errors.
func readManagerConfig(path string, defaults *managerconfig.KubeControllerManagerConfiguration) (*managerconfig.KubeControllerManagerConfiguration, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	versioned := &managerv1alpha1.KubeControllerManagerConfiguration{}
	if err := managerscheme.Scheme.Convert(defaults, versioned, nil); err != nil {
		return nil, err
	}
	if err := yaml.UnmarshalStrict(data, versioned); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	const kind = "KubeControllerManagerConfiguration"
	if versioned.Kind != kind || versioned.APIVersion != managerv1alpha1.SchemeGroupVersion.String() {
		return nil, fmt.Errorf("%s: must be a %s of %s", path, kind, managerv1alpha1.SchemeGroupVersion)
	}
	config := &managerconfig.KubeControllerManagerConfiguration{}
	if err := managerscheme.Scheme.Convert(versioned, config, nil); err != nil {
		return nil, err
	}
	return config, nil
}

// apply copies the controllers' settings into the options, which have a field for each section, with the section embedded.
func apply(config *managerconfig.KubeControllerManagerConfiguration, o *options.KubeControllerManagerOptions) {
	to := reflect.ValueOf(o).Elem()
	others := []string{"Generic", "ServiceController"} // of the program, and of cloud providers
	for section, settings := range reflect.ValueOf(config).Elem().Fields() {
		if option := to.FieldByName(section.Name); option.IsValid() && !slices.Contains(others, section.Name) {
			option.Elem().FieldByName(section.Type.Name()).Elem().Set(settings)
		}
	}
}

// completeScheduler reads the scheduler's configuration, or takes upstream's default.
func (o *Options) completeScheduler() (err error) {
	if o.schedulerFile == "" {
		o.scheduler, err = latest.Default()
		return err
	}
	if o.scheduler, err = scheduleroptions.LoadConfigFromFile(klog.Background(), o.schedulerFile); err != nil {
		return fmt.Errorf("--scheduler-config: %w", err)
	}
	if err := validation.ValidateKubeSchedulerConfiguration(o.scheduler); err != nil {
		return fmt.Errorf("--scheduler-config: %s: %w", o.schedulerFile, err)
	}
	return nil
}
