package informer

import (
	"k8s.io/client-go/informers/admissionregistration"
	"k8s.io/client-go/informers/apiserverinternal"
	"k8s.io/client-go/informers/apps"
	"k8s.io/client-go/informers/autoscaling"
	"k8s.io/client-go/informers/batch"
	"k8s.io/client-go/informers/certificates"
	"k8s.io/client-go/informers/coordination"
	"k8s.io/client-go/informers/core"
	"k8s.io/client-go/informers/discovery"
	"k8s.io/client-go/informers/events"
	"k8s.io/client-go/informers/extensions"
	"k8s.io/client-go/informers/flowcontrol"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/informers/lifecycle"
	"k8s.io/client-go/informers/networking"
	"k8s.io/client-go/informers/node"
	"k8s.io/client-go/informers/policy"
	"k8s.io/client-go/informers/rbac"
	"k8s.io/client-go/informers/resource"
	"k8s.io/client-go/informers/scheduling"
	"k8s.io/client-go/informers/storage"
	"k8s.io/client-go/informers/storagemigration"
)

// Groups are the groups of a factory of shared informers, each of which gets its informers from InformerFor.
type Groups struct {
	of internalinterfaces.SharedInformerFactory
}

// GroupsOf returns the groups of a factory.
func GroupsOf(factory internalinterfaces.SharedInformerFactory) Groups { return Groups{factory} }

// Admissionregistration returns the group's informers.
func (g Groups) Admissionregistration() admissionregistration.Interface {
	return admissionregistration.New(g.of, "", nil)
}

// Internal returns the group's informers.
func (g Groups) Internal() apiserverinternal.Interface { return apiserverinternal.New(g.of, "", nil) }

// Apps returns the group's informers.
func (g Groups) Apps() apps.Interface { return apps.New(g.of, "", nil) }

// Autoscaling returns the group's informers.
func (g Groups) Autoscaling() autoscaling.Interface { return autoscaling.New(g.of, "", nil) }

// Batch returns the group's informers.
func (g Groups) Batch() batch.Interface { return batch.New(g.of, "", nil) }

// Certificates returns the group's informers.
func (g Groups) Certificates() certificates.Interface { return certificates.New(g.of, "", nil) }

// Coordination returns the group's informers.
func (g Groups) Coordination() coordination.Interface { return coordination.New(g.of, "", nil) }

// Core returns the group's informers.
func (g Groups) Core() core.Interface { return core.New(g.of, "", nil) }

// Discovery returns the group's informers.
func (g Groups) Discovery() discovery.Interface { return discovery.New(g.of, "", nil) }

// Events returns the group's informers.
func (g Groups) Events() events.Interface { return events.New(g.of, "", nil) }

// Extensions returns the group's informers.
func (g Groups) Extensions() extensions.Interface { return extensions.New(g.of, "", nil) }

// Flowcontrol returns the group's informers.
func (g Groups) Flowcontrol() flowcontrol.Interface { return flowcontrol.New(g.of, "", nil) }

// Lifecycle returns the group's informers.
func (g Groups) Lifecycle() lifecycle.Interface { return lifecycle.New(g.of, "", nil) }

// Networking returns the group's informers.
func (g Groups) Networking() networking.Interface { return networking.New(g.of, "", nil) }

// Node returns the group's informers.
func (g Groups) Node() node.Interface { return node.New(g.of, "", nil) }

// Policy returns the group's informers.
func (g Groups) Policy() policy.Interface { return policy.New(g.of, "", nil) }

// Rbac returns the group's informers.
func (g Groups) Rbac() rbac.Interface { return rbac.New(g.of, "", nil) }

// Resource returns the group's informers.
func (g Groups) Resource() resource.Interface { return resource.New(g.of, "", nil) }

// Scheduling returns the group's informers.
func (g Groups) Scheduling() scheduling.Interface { return scheduling.New(g.of, "", nil) }

// Storage returns the group's informers.
func (g Groups) Storage() storage.Interface { return storage.New(g.of, "", nil) }

// Storagemigration returns the group's informers.
func (g Groups) Storagemigration() storagemigration.Interface {
	return storagemigration.New(g.of, "", nil)
}
