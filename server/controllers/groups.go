package controllers

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
	"k8s.io/client-go/informers/networking"
	"k8s.io/client-go/informers/node"
	"k8s.io/client-go/informers/policy"
	"k8s.io/client-go/informers/rbac"
	"k8s.io/client-go/informers/resource"
	"k8s.io/client-go/informers/scheduling"
	"k8s.io/client-go/informers/storage"
	"k8s.io/client-go/informers/storagemigration"
)

// The groups of the factory, whose informers record handlers.

func (s *sharedInformers) Admissionregistration() admissionregistration.Interface {
	return admissionregistration.New(s, "", nil)
}
func (s *sharedInformers) Internal() apiserverinternal.Interface {
	return apiserverinternal.New(s, "", nil)
}
func (s *sharedInformers) Apps() apps.Interface                 { return apps.New(s, "", nil) }
func (s *sharedInformers) Autoscaling() autoscaling.Interface   { return autoscaling.New(s, "", nil) }
func (s *sharedInformers) Batch() batch.Interface               { return batch.New(s, "", nil) }
func (s *sharedInformers) Certificates() certificates.Interface { return certificates.New(s, "", nil) }
func (s *sharedInformers) Coordination() coordination.Interface { return coordination.New(s, "", nil) }
func (s *sharedInformers) Core() core.Interface                 { return core.New(s, "", nil) }
func (s *sharedInformers) Discovery() discovery.Interface       { return discovery.New(s, "", nil) }
func (s *sharedInformers) Events() events.Interface             { return events.New(s, "", nil) }
func (s *sharedInformers) Extensions() extensions.Interface     { return extensions.New(s, "", nil) }
func (s *sharedInformers) Flowcontrol() flowcontrol.Interface   { return flowcontrol.New(s, "", nil) }
func (s *sharedInformers) Networking() networking.Interface     { return networking.New(s, "", nil) }
func (s *sharedInformers) Node() node.Interface                 { return node.New(s, "", nil) }
func (s *sharedInformers) Policy() policy.Interface             { return policy.New(s, "", nil) }
func (s *sharedInformers) Rbac() rbac.Interface                 { return rbac.New(s, "", nil) }
func (s *sharedInformers) Resource() resource.Interface         { return resource.New(s, "", nil) }
func (s *sharedInformers) Scheduling() scheduling.Interface     { return scheduling.New(s, "", nil) }
func (s *sharedInformers) Storage() storage.Interface           { return storage.New(s, "", nil) }
func (s *sharedInformers) Storagemigration() storagemigration.Interface {
	return storagemigration.New(s, "", nil)
}
