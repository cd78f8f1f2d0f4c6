package controllers

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher"
	serviceaccountcontroller "k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/serviceaccount"
	"k8s.io/utils/clock"
)

var tokenSecrets = fields.OneTermEqualSelector("type", string(corev1.SecretTypeServiceAccountToken))

// buildServiceAccount builds the controller that creates ServiceAccount default in every namespace.
func buildServiceAccount(ctx context.Context, s *runState, c clients) (func(context.Context), error) {
	controller, err := serviceaccountcontroller.NewServiceAccountsController(klog.FromContext(ctx),
		s.shared.Core().V1().ServiceAccounts(), s.shared.Core().V1().Namespaces(), c,
		serviceaccountcontroller.DefaultServiceAccountsControllerOptions())
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) { controller.Run(ctx, 1) }, nil
}

// buildServiceAccountToken builds the controller that fills in token Secrets, unless there is no key to sign with.
func buildServiceAccountToken(ctx context.Context, s *runState, c clients) (func(context.Context), error) {
	if s.config.ServiceAccountKey == nil {
		return nil, nil
	}
	generator, err := serviceaccount.JWTTokenGenerator(serviceaccount.LegacyIssuer, s.config.ServiceAccountKey)
	if err != nil {
		return nil, fmt.Errorf("sign with the service account key: %w", err)
	}
	controller, err := serviceaccountcontroller.NewTokensController(klog.FromContext(ctx),
		s.shared.Core().V1().ServiceAccounts(), s.selected(c, tokenSecrets).Core().V1().Secrets(), c,
		serviceaccountcontroller.TokensControllerOptions{TokenGenerator: generator, RootCA: s.config.RootCA})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) {
		controller.Run(ctx, int(s.config.Settings.SAController.ConcurrentSATokenSyncs))
	}, nil
}

// buildLegacyTokenCleaner builds the controller that removes token Secrets which no one uses.
func buildLegacyTokenCleaner(_ context.Context, s *runState, c clients) (func(context.Context), error) {
	controller, err := serviceaccountcontroller.NewLegacySATokenCleaner(
		s.shared.Core().V1().ServiceAccounts(), s.selected(c, tokenSecrets).Core().V1().Secrets(), s.shared.Core().V1().Pods(),
		c, clock.RealClock{}, serviceaccountcontroller.LegacySATokenCleanerOptions{
			CleanUpPeriod: s.config.Settings.LegacySATokenCleaner.CleanUpPeriod.Duration,
			SyncInterval:  serviceaccountcontroller.DefaultCleanerSyncInterval,
		})
	if err != nil {
		return nil, err
	}
	return controller.Run, nil
}

// buildRootCAPublisher builds the controller that puts the server's CA into every namespace, where Pods mount it.
func buildRootCAPublisher(_ context.Context, s *runState, c clients) (func(context.Context), error) {
	published := fields.OneTermEqualSelector(metav1.ObjectNameField, rootcacertpublisher.RootCACertConfigMapName)
	controller, err := rootcacertpublisher.NewPublisher(
		s.selected(c, published).Core().V1().ConfigMaps(), s.shared.Core().V1().Namespaces(), c, s.config.RootCA)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) { controller.Run(ctx, 1) }, nil
}
