package admission

import (
	"context"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/sqlstore"
)

// Upstream's plugins look things up in informers, which don't have what a transaction has gathered, and then ask the server without the
// context of the request. For the writes of a transaction there are instances that see what it has written: their informers have it, and what
// they ask for or write is part of the transaction. So a quota counts the objects of a transaction, and counts nothing if that is refused.
//
// Webhooks, policies and everything else have one instance. What configures them takes effect when the transaction is committed, and so do
// changed labels of a namespace for their selectors; see namespaces.go for namespaces that a transaction creates.

// lookingUp are the plugins that look up what can be written in the same transaction.
var lookingUp = []string{
	"NamespaceAutoProvision", "NamespaceLifecycle", "NamespaceExists", "LimitRanger", "ServiceAccount", "NodeRestriction", "PodSecurity",
	"PodNodeSelector", "Priority", "PodTolerationRestriction", "DefaultStorageClass", "PersistentVolumeClaimResize", "RuntimeClass",
	"DefaultIngressClass", "PodTopologyLabels", "NodeDeclaredFeatureValidator", "PodResizeValidator", quota,
}

// quota is the plugin that counts.
const quota = "ResourceQuota"

// instances makes the plugins of transactions.
type instances struct {
	created      *createdNamespaces
	config       Config
	plugins      *admission.Plugins
	configs      admission.ConfigProvider
	initializers func(Config) (admission.PluginInitializers, error)
}

// decorate returns a plugin whose steps are those of another instance in a transaction, if it is one of lookingUp.
func (i *instances) decorate(plugin admission.Interface, name string) admission.Interface {
	_, selects := kinds[name]
	own := func(ctx context.Context, a admission.Attributes) (admission.Interface, error) {
		t := sqlstore.TransactionFrom(ctx)
		switch {
		case t == nil:
		case slices.Contains(lookingUp, name):
			return i.of(t, name)
		case selects:
			return plugin, i.created.note(t, a.GetNamespace())
		}
		return plugin, nil
	}
	s := steps{plugin, own, name}
	_, mutates := plugin.(admission.MutationInterface)
	_, validates := plugin.(admission.ValidationInterface)
	switch {
	case mutates && validates:
		return struct {
			mutating
			validating
			admission.Interface
		}{mutating{s}, validating{s}, plugin}
	case mutates:
		return mutating{s}
	case validates:
		return validating{s}
	}
	return plugin
}

// instance is a plugin of a transaction.
type instance struct {
	chain *instances
	name  string
}

// instanceOrError is what making one has returned.
type instanceOrError struct {
	plugin admission.Interface
	err    error
}

// of returns a transaction's instance of a plugin.
func (i *instances) of(t *sqlstore.Transaction, name string) (admission.Interface, error) {
	made := t.Kept(instance{i, name}, func() any {
		plugin, err := i.make(t, name)
		return instanceOrError{plugin, err}
	}).(instanceOrError)
	return made.plugin, made.err
}

func (i *instances) make(t *sqlstore.Transaction, name string) (admission.Interface, error) {
	type initializers struct {
		admission.PluginInitializers
		err error
	}
	common := t.Kept(instance{i, ""}, func() any {
		c, err := i.config.in(t)
		if err != nil {
			return initializers{err: err}
		}
		all, err := i.initializers(c)
		return initializers{all, err}
	}).(initializers)
	if common.err != nil {
		return nil, common.err
	}
	config, err := i.configs.ConfigFor(name)
	if err != nil {
		return nil, err
	}
	return i.plugins.InitPlugin(name, config, common.PluginInitializers)
}

// in returns the configuration of the plugins of a transaction.
func (c Config) in(t *sqlstore.Transaction) (_ Config, err error) {
	c.Loopback = rest.CopyConfig(c.Loopback)
	c.Loopback.Transport = joining{c.Loopback.Transport, t}
	if c.Client, err = kubernetes.NewForConfig(c.Loopback); err != nil {
		return c, err
	}
	c.Informers = newJoinedInformers(c.Informers, c.Client, t)
	drained := make(chan struct{})
	t.AtEnd(func(sqlstore.Outcome) { close(drained) })
	c.Drained = drained
	return c, nil
}

// joining sends requests in a transaction.
type joining struct {
	next        http.RoundTripper
	transaction *sqlstore.Transaction
}

// RoundTrip implements http.RoundTripper.
func (j joining) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(sqlstore.WithTransaction(r.Context(), j.transaction))
	if id := j.transaction.AuditID; id != "" {
		r.Header.Set(auditinternal.HeaderAuditID, id)
	}
	return j.next.RoundTrip(r)
}

// steps are those of a plugin, or of its instance for the transaction of a request.
type steps struct {
	admission.Interface
	own  func(context.Context, admission.Attributes) (admission.Interface, error)
	name string
}

type mutating struct{ steps }

// Admit implements admission.MutationInterface.
func (m mutating) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	plugin, err := m.own(ctx, a)
	if err != nil {
		return err
	}
	return plugin.(admission.MutationInterface).Admit(ctx, m.seen(ctx, a), o)
}

type validating struct{ steps }

// Validate implements admission.ValidationInterface.
func (v validating) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	plugin, err := v.own(ctx, a)
	if err != nil {
		return err
	}
	return plugin.(admission.ValidationInterface).Validate(ctx, v.seen(ctx, a), o)
}

// seen returns what the plugin sees of a write. The transaction of a dry run gathers writes like any other, so they have no dryRun; plugins
// see it, but for those whose own writes are gathered, too.
func (s steps) seen(ctx context.Context, a admission.Attributes) admission.Attributes {
	if t := sqlstore.TransactionFrom(ctx); t == nil || !t.DryRun || s.name == quota || s.name == "NamespaceAutoProvision" {
		return a
	}
	return dryRun{a}
}

// dryRun are the attributes of a write that will not be committed.
type dryRun struct{ admission.Attributes }

// IsDryRun implements admission.Attributes.
func (dryRun) IsDryRun() bool { return true }

// GetOperationOptions implements admission.Attributes.
func (d dryRun) GetOperationOptions() runtime.Object {
	all := []string{metav1.DryRunAll}
	switch options := d.Attributes.GetOperationOptions().(type) {
	case *metav1.CreateOptions:
		options = options.DeepCopy()
		options.DryRun = all
		return options
	case *metav1.UpdateOptions:
		options = options.DeepCopy()
		options.DryRun = all
		return options
	case *metav1.PatchOptions:
		options = options.DeepCopy()
		options.DryRun = all
		return options
	case *metav1.DeleteOptions:
		options = options.DeepCopy()
		options.DryRun = all
		return options
	default:
		return options
	}
}
