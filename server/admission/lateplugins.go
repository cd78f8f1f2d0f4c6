package admission

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	admissioninformers "k8s.io/client-go/informers/admissionregistration/v1"
	"k8s.io/client-go/tools/cache"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"
)

// kind is a plugin of objects that most clusters have none of, and the operations that it handles.
type kind struct {
	build      admission.Factory
	operations []admission.Operation
	informer   func(admissioninformers.Interface) cache.SharedIndexInformer
}

// kinds are the plugins that are built late: each takes half a megabyte for its CEL environments, or goroutines and timers.
var kinds = map[string]kind{
	mutatingwebhook.PluginName: {
		func(config io.Reader) (admission.Interface, error) { return mutatingwebhook.NewMutatingWebhook(config) },
		[]admission.Operation{admission.Connect, admission.Create, admission.Delete, admission.Update},
		func(i admissioninformers.Interface) cache.SharedIndexInformer {
			return i.MutatingWebhookConfigurations().Informer()
		},
	},
	validatingwebhook.PluginName: {
		func(config io.Reader) (admission.Interface, error) {
			return validatingwebhook.NewValidatingAdmissionWebhook(config)
		},
		[]admission.Operation{admission.Connect, admission.Create, admission.Delete, admission.Update},
		func(i admissioninformers.Interface) cache.SharedIndexInformer {
			return i.ValidatingWebhookConfigurations().Informer()
		},
	},
	mutatingpolicy.PluginName: {
		func(config io.Reader) (admission.Interface, error) { return mutatingpolicy.NewPlugin(config) },
		[]admission.Operation{admission.Connect, admission.Create, admission.Update},
		func(i admissioninformers.Interface) cache.SharedIndexInformer {
			i.MutatingAdmissionPolicyBindings().Informer() // the plugin needs it too
			return i.MutatingAdmissionPolicies().Informer()
		},
	},
	validatingpolicy.PluginName: {
		func(config io.Reader) (admission.Interface, error) { return validatingpolicy.NewPlugin(config) },
		[]admission.Operation{admission.Connect, admission.Create, admission.Delete, admission.Update},
		func(i admissioninformers.Interface) cache.SharedIndexInformer {
			i.ValidatingAdmissionPolicyBindings().Informer()
			return i.ValidatingAdmissionPolicies().Informer()
		},
	},
}

// plugins returns kube-apiserver's plugins. Those of kinds are built late, unless they have a configuration of their own.
func plugins() *admission.Plugins {
	all := admission.NewPlugins()
	lifecycle.Register(all)
	kubeoptions.RegisterAllAdmissionPlugins(all)
	for name, kind := range kinds {
		all.Register(name, func(config io.Reader) (admission.Interface, error) {
			if config != nil || name == mutatingpolicy.PluginName && !utilfeature.DefaultFeatureGate.Enabled(features.MutatingAdmissionPolicy) {
				return kind.build(config)
			}
			plugin := &latePlugin{Handler: admission.NewHandler(kind.operations...), name: name, kind: kind}
			if name == mutatingwebhook.PluginName || name == mutatingpolicy.PluginName {
				return &lateMutator{plugin}, nil
			}
			return &lateValidator{plugin}, nil
		})
	}
	return all
}

// lateInitializer initializes plugins, late ones when they are built.
type lateInitializer struct {
	admission.PluginInitializers
	informers informers.SharedInformerFactory
	drained   <-chan struct{}
}

// Initialize implements admission.PluginInitializer.
func (i lateInitializer) Initialize(plugin admission.Interface) {
	if late, ok := plugin.(interface{ delay(lateInitializer) }); ok {
		late.delay(i)
		return
	}
	i.PluginInitializers.Initialize(plugin)
}

// latePlugin admits everything until there is an object of its kind. Then it is the plugin.
type latePlugin struct {
	*admission.Handler
	name        string
	kind        kind
	initializer lateInitializer
	objects     cache.SharedIndexInformer

	plugin atomic.Pointer[admission.Interface] // once it is built
	build  sync.Mutex
}

func (p *latePlugin) delay(i lateInitializer) {
	p.initializer, p.objects = i, p.kind.informer(i.informers.Admissionregistration().V1())
}

// syncTimeout is how long requests wait for the informer, like upstream's plugins.
const syncTimeout = 10 * time.Second

// built returns the plugin, nil if there are no objects. If the informer does not know that in time, upstream's plugin answers.
func (p *latePlugin) built(ctx context.Context) (admission.Interface, error) {
	if built := p.plugin.Load(); built != nil {
		return *built, nil
	}
	if !p.objects.HasSynced() {
		waiting, cancel := context.WithTimeout(ctx, syncTimeout)
		defer cancel()
		select {
		case <-p.objects.HasSyncedChecker().Done():
		case <-waiting.Done():
		}
	}
	if p.objects.HasSynced() && len(p.objects.GetStore().ListKeys()) == 0 {
		return nil, nil
	}
	p.build.Lock()
	defer p.build.Unlock()
	if built := p.plugin.Load(); built != nil {
		return *built, nil
	}
	plugin, err := p.kind.build(nil)
	if err == nil {
		p.initializer.PluginInitializers.Initialize(plugin)
		err = admission.ValidateInitialization(plugin)
	}
	if err != nil {
		return nil, fmt.Errorf("building the admission plugin %s: %w", p.name, err)
	}
	p.initializer.informers.Start(p.initializer.drained) // those that the plugin has requested
	p.plugin.Store(&plugin)
	return plugin, nil
}

type lateMutator struct{ *latePlugin }

// Admit implements admission.MutationInterface.
func (p *lateMutator) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	plugin, err := p.built(ctx)
	if plugin == nil {
		return err
	}
	return plugin.(admission.MutationInterface).Admit(ctx, a, o)
}

type lateValidator struct{ *latePlugin }

// Validate implements admission.ValidationInterface.
func (p *lateValidator) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	plugin, err := p.built(ctx)
	if plugin == nil {
		return err
	}
	return plugin.(admission.ValidationInterface).Validate(ctx, a, o)
}
