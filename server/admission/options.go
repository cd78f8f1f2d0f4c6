// Package admission builds the admission chain of kube-apiserver: the same plugins, in the same order, with the same
// flags, and on by default as in a kubeadm cluster.
package admission

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/sets"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"

	"github.com/sqube/sqube/server/flagcheck"
)

// Options hold --enable-admission-plugins, --disable-admission-plugins, --admission-control-config-file and the flags
// of single plugins. Make them with [NewOptions].
type Options struct {
	kube *kubeoptions.AdmissionOptions
}

// NewOptions returns kube-apiserver's defaults, plus NodeRestriction as in a kubeadm cluster: without it, the Node authorizer
// lets a kubelet create Pods with any service account, and then get tokens for it.
func NewOptions() *Options {
	kube := kubeoptions.NewAdmissionOptions()
	kube.GenericAdmission.DefaultOffPlugins.Delete("NodeRestriction")
	return &Options{kube: kube}
}

// AddFlags adds the flags to fs under kube-apiserver's names. Flags of single plugins (such as
// --default-not-ready-toleration-seconds) set variables of the process, not of these Options.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	o.kube.AddFlags(fs)
	on, all := o.Names(), slices.Clone(o.kube.GenericAdmission.RecommendedPluginOrder)
	for i, name := range all {
		if !slices.Contains(on, name) {
			all[i] = "(" + name + ")"
		}
	}
	for name, usage := range map[string]string{
		"enable-admission-plugins":  "Admission plugins to turn on in addition to the default ones, in any order. They always run in this order; those in parentheses are off by default: " + strings.Join(all, ", ") + ".",
		"disable-admission-plugins": "Admission plugins to turn off, in any order.",
		"admission-control":         "All admission plugins to run. Deprecated: use the two flags above.",
	} {
		fs.Lookup(name).Usage = usage
	}
}

// Validate returns all problems with the flags as one error, mostly with kube-apiserver's messages: an unknown plugin, one that is both
// enabled and disabled, a file that can't be read.
func (o *Options) Validate() error {
	errs := flagcheck.Problems(o.kube.Validate())
	errs.Readable("admission-control-config-file", o.kube.GenericAdmission.ConfigFile)
	return errors.Join(errs...)
}

// TurnOff turns all plugins off, for a server in which nothing is written.
func (o *Options) TurnOff() {
	o.kube.GenericAdmission.DisablePlugins = slices.Clone(o.kube.GenericAdmission.RecommendedPluginOrder)
}

// Configured reports whether plugins have a configuration, which can name webhooks and policies.
func (o *Options) Configured() bool { return o.kube.GenericAdmission.ConfigFile != "" }

// Disable turns plugins off.
func (o *Options) Disable(plugins ...string) {
	o.kube.GenericAdmission.DisablePlugins = append(o.kube.GenericAdmission.DisablePlugins, plugins...)
}

// Names returns the plugins that are on, in the order in which they run.
func (o *Options) Names() []string {
	generic := o.kube.GenericAdmission
	enabled, disabled := sets.New(generic.EnablePlugins...), sets.New(generic.DisablePlugins...)
	off := generic.DefaultOffPlugins.Union(disabled)
	if o.kube.PluginNames != nil { // --admission-control names all plugins to run
		enabled, off = sets.New(o.kube.PluginNames...), sets.New(generic.RecommendedPluginOrder...)
	}
	return slices.DeleteFunc(slices.Clone(generic.RecommendedPluginOrder), func(name string) bool {
		return off.Has(name) && !enabled.Has(name)
	})
}
