package controllers

import (
	"context"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/servicecidrs"
	"k8s.io/kubernetes/pkg/controller/volume/pvcprotection"
	"k8s.io/kubernetes/pkg/controller/volume/pvprotection"
	"k8s.io/kubernetes/pkg/controller/volume/vacprotection"
)

const serviceCIDRWorkers = 5

// buildServiceCIDR builds the controller that sets ServiceCIDRs ready, and protects those with addresses in use.
func buildServiceCIDR(ctx context.Context, s *runState, c clients) (func(context.Context), error) {
	networking := s.shared.Networking().V1()
	controller := servicecidrs.NewController(ctx, networking.ServiceCIDRs(), networking.IPAddresses(), c)
	return func(ctx context.Context) { controller.Run(ctx, serviceCIDRWorkers) }, nil
}

// buildClaimProtection builds the controller that releases a PersistentVolumeClaim when no Pod uses it.
func buildClaimProtection(ctx context.Context, s *runState, c clients) (func(context.Context), error) {
	controller, err := pvcprotection.NewPVCProtectionController(klog.FromContext(ctx),
		s.shared.Core().V1().PersistentVolumeClaims(), s.shared.Core().V1().Pods(), c)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) { controller.Run(ctx, 1) }, nil
}

// buildVolumeProtection builds the controller that releases a PersistentVolume when no claim is bound to it.
func buildVolumeProtection(ctx context.Context, s *runState, c clients) (func(context.Context), error) {
	controller := pvprotection.NewPVProtectionController(klog.FromContext(ctx), s.shared.Core().V1().PersistentVolumes(), c)
	return func(ctx context.Context) { controller.Run(ctx, 1) }, nil
}

// buildAttributesClassProtection builds the controller that releases a VolumeAttributesClass when no volume uses it.
func buildAttributesClassProtection(ctx context.Context, s *runState, c clients) (func(context.Context), error) {
	controller, err := vacprotection.NewVACProtectionController(klog.FromContext(ctx), c,
		s.shared.Core().V1().PersistentVolumeClaims(), s.shared.Core().V1().PersistentVolumes(),
		s.shared.Storage().V1().VolumeAttributesClasses())
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) { controller.Run(ctx, 1) }, nil
}
