package crd

import (
	"context"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/controller/apiapproval"
	"k8s.io/apiextensions-apiserver/pkg/controller/finalizer"
	"k8s.io/apiextensions-apiserver/pkg/controller/nonstructuralschema"
	"k8s.io/apiextensions-apiserver/pkg/controller/status"
	"k8s.io/klog/v2"
)

// workers is how many definitions each controller handles at once, like kube-apiserver.
const workers = 5

// Run reads the definitions and runs their controllers over the loopback client until ctx ends. It returns when all of them have
// ended. It must be called once.
//
//	naming               decides which definition gets a name, in status.acceptedNames
//	establishing         lets definitions be served once their names are accepted
//	nonstructuralschema  reports schemas that are not structural
//	apiapproval          reports *.k8s.io groups without approval
//	finalizer            deletes custom resources before their definition
func (s *Server) Run(ctx context.Context) {
	definitions := s.client.ApiextensionsV1()
	naming := status.NewNamingConditionController(klog.FromContext(ctx), s.informer, definitions)
	nonStructural := nonstructuralschema.NewConditionController(s.informer, definitions)
	approval := apiapproval.NewKubernetesAPIApprovalPolicyConformantConditionController(s.informer, definitions)
	finalizing := finalizer.NewCRDFinalizer(s.informer, definitions, s.resources)

	s.factory.StartWithContext(ctx)
	var running sync.WaitGroup
	for _, run := range []func(context.Context){
		naming.RunWithContext,
		s.establishing.RunWithContext,
		func(ctx context.Context) { nonStructural.RunWithContext(workers, ctx) },
		func(ctx context.Context) { approval.RunWithContext(workers, ctx) },
		func(ctx context.Context) { finalizing.RunWithContext(workers, ctx) },
	} {
		running.Go(func() { run(ctx) })
	}
	close(s.started)
	running.Wait()
	s.factory.Shutdown()
}
