package access

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/server/egressselector"
	"k8s.io/kubernetes/pkg/kubeapiserver/authorizer/modes"
)

// Authorization decides what a caller may do.
type Authorization struct {
	// Authorizer lets system:masters do everything and asks the configured authorizers about everyone else.
	Authorizer authorizer.Authorizer
	// RBAC means that one of the authorizers is RBAC.
	RBAC bool
	// Rules lists what a caller may do in a namespace, for SelfSubjectRulesReview.
	Rules authorizer.RuleResolver
}

// NewAuthorization builds an Authorization from completed options. The authorizers Node and RBAC need the informers of c to run. With
// --authorization-config the file is read again when it changes, until ctx ends. An error means that a file named by a flag is
// invalid.
func NewAuthorization(ctx context.Context, o *Options, c Cluster) (*Authorization, error) {
	config, err := o.Authorization.ToAuthorizationConfig(c.Informers)
	if err == nil && c.Egress != nil {
		config.CustomDial, err = c.Egress.Lookup(egressselector.ControlPlane.AsNetworkContext())
	}
	if err != nil {
		return nil, fmt.Errorf("setting up authorization: %w", err)
	}
	auth, rules, err := config.New(ctx, c.ServerID)
	if err != nil {
		return nil, fmt.Errorf("setting up authorization: %w", err)
	}
	rbac := slices.ContainsFunc(config.AuthorizationConfiguration.Authorizers, func(a apiserver.AuthorizerConfiguration) bool {
		return string(a.Type) == modes.ModeRBAC
	})
	return &Authorization{Authorizer: auth, RBAC: rbac, Rules: rules}, nil
}
