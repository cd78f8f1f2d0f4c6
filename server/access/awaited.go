package access

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// awaited is an authorizer that has the rights of users in informers. Until these have synced, which takes milliseconds after a start, it would
// refuse what is allowed: requests wait.
type awaited struct {
	authorizer.Authorizer
	rules     authorizer.RuleResolver
	informers []cache.SharedIndexInformer
	synced    atomic.Bool
}

func awaitRoles(a authorizer.Authorizer, rules authorizer.RuleResolver, shared informers.SharedInformerFactory) *awaited {
	rbac := shared.Rbac().V1()
	return &awaited{Authorizer: a, rules: rules, informers: []cache.SharedIndexInformer{
		rbac.ClusterRoles().Informer(), rbac.ClusterRoleBindings().Informer(), rbac.Roles().Informer(), rbac.RoleBindings().Informer(),
	}}
}

func (a *awaited) wait(ctx context.Context, u user.Info) error {
	// The informers' own requests are those of system:masters, who may do everything.
	if a.synced.Load() || u != nil && slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) {
		return nil
	}
	for _, informer := range a.informers {
		select {
		case <-informer.HasSyncedChecker().Done():
		case <-ctx.Done():
			return fmt.Errorf("wait until the roles and bindings have been read: %w", ctx.Err())
		}
	}
	a.synced.Store(true)
	return nil
}

// Authorize implements authorizer.Authorizer.
func (a *awaited) Authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	if err := a.wait(ctx, attributes.GetUser()); err != nil {
		return authorizer.DecisionNoOpinion, "", err
	}
	return a.Authorizer.Authorize(ctx, attributes)
}

// ConditionsAwareAuthorize implements authorizer.Authorizer.
func (a *awaited) ConditionsAwareAuthorize(ctx context.Context, attributes authorizer.Attributes) authorizer.ConditionsAwareDecision {
	if err := a.wait(ctx, attributes.GetUser()); err != nil {
		return authorizer.ConditionsAwareDecisionFromParts(authorizer.DecisionNoOpinion, "", err)
	}
	return a.Authorizer.ConditionsAwareAuthorize(ctx, attributes)
}

// RulesFor implements authorizer.RuleResolver.
func (a *awaited) RulesFor(ctx context.Context, u user.Info, namespace string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	if err := a.wait(ctx, u); err != nil {
		return nil, nil, true, err
	}
	return a.rules.RulesFor(ctx, u, namespace)
}
