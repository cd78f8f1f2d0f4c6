package controllers

import (
	"context"

	validating "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	"k8s.io/kubernetes/pkg/controller/validatingadmissionpolicystatus"
)

// clusterRoleWorkers is upstream's.
const clusterRoleWorkers = 5

// buildClusterRoleAggregation builds the controller that gathers the rules of aggregated ClusterRoles.
func buildClusterRoleAggregation(_ context.Context, s *runState, c clients) (func(context.Context), error) {
	controller := clusterroleaggregation.NewClusterRoleAggregation(s.shared.Rbac().V1().ClusterRoles(), c.RbacV1())
	return func(ctx context.Context) { controller.Run(ctx, clusterRoleWorkers) }, nil
}

// buildPolicyStatus builds the controller that checks the types in the expressions of ValidatingAdmissionPolicies. It
// gets schemas from /openapi/v3 when a policy needs them; upstream also builds all of them in memory first.
func buildPolicyStatus(_ context.Context, s *runState, c clients) (func(context.Context), error) {
	checker := &validating.TypeChecker{
		SchemaResolver: &resolver.ClientDiscoveryResolver{Discovery: c.Discovery()},
		RestMapper:     s.mapper,
	}
	controller, err := validatingadmissionpolicystatus.NewController(
		s.shared.Admissionregistration().V1().ValidatingAdmissionPolicies(),
		c.AdmissionregistrationV1().ValidatingAdmissionPolicies(), checker)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) {
		controller.Run(ctx, int(s.config.Settings.ValidatingAdmissionPolicyStatusController.ConcurrentPolicySyncs))
	}, nil
}
