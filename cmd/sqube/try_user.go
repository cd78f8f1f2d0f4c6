package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"github.com/sqube/sqube/server/trial"
)

// groupsOf returns the groups of a user that is named with --as: those that a cluster would add, too.
func groupsOf(name string, groups []string) []string {
	if namespace, _, err := serviceaccount.SplitUsername(name); err == nil {
		groups = append(slices.Clone(groups), serviceaccount.MakeGroupNames(namespace)...)
	}
	return append(slices.Clone(groups), user.AllAuthenticated)
}

// whoAmI returns the user of a configuration, as the cluster knows it.
func whoAmI(ctx context.Context, config *rest.Config) (name string, groups []string, err error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", nil, err
	}
	for _, version := range []string{"v1", "v1beta1", "v1alpha1"} { // from 1.28, 1.27, 1.26 on
		asked := fmt.Appendf(nil, `{"apiVersion":"authentication.k8s.io/%s","kind":"SelfSubjectReview"}`, version)
		answer, failed := client.RESTClient().Post().AbsPath("/apis/authentication.k8s.io", version, "selfsubjectreviews").
			SetHeader("Content-Type", "application/json").SetHeader("Accept", "application/json").Body(asked).DoRaw(ctx)
		if err = failed; err == nil {
			var review authenticationv1.SelfSubjectReview
			err = json.Unmarshal(answer, &review)
			return review.Status.UserInfo.Username, review.Status.UserInfo.Groups, err
		}
		if !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
			return "", nil, err
		}
	}
	if name, groups, ok := subject(config); ok {
		return name, groups, nil
	}
	return "", nil, fmt.Errorf("%w; say it with --as and --as-group", err)
}

// subject returns the user in a client certificate, if there is one.
func subject(config *rest.Config) (name string, groups []string, ok bool) {
	if err := rest.LoadTLSFiles(config); err != nil {
		return "", nil, false
	}
	found, err := cert.ParseCertsPEM(config.CertData)
	if err != nil {
		return "", nil, false
	}
	s := found[0].Subject
	return s.CommonName, append(slices.Clone(s.Organization), user.AllAuthenticated), true
}

// grantsOf returns what the user of a configuration may do in a cluster: everything, or what it says of namespaces.
func grantsOf(ctx context.Context, config *rest.Config, namespaces []string) ([]trial.Grant, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	all := []string{"*"}
	asked := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "*", Group: "*", Version: "*", Resource: "*"},
	}}
	everything, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, asked, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	if everything.Status.Allowed {
		return []trial.Grant{{Rules: []rbacv1.PolicyRule{{Verbs: all, APIGroups: all, Resources: all}, {Verbs: all, NonResourceURLs: all}}}}, nil
	}
	var grants []trial.Grant
	for _, namespace := range namespaces {
		review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}
		answer, err := client.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		grant := trial.Grant{Namespace: namespace}
		for _, r := range answer.Status.ResourceRules {
			if len(r.Verbs) > 0 && len(r.Resources) > 0 && len(r.APIGroups) > 0 {
				grant.Rules = append(grant.Rules, rbacv1.PolicyRule{Verbs: r.Verbs, APIGroups: r.APIGroups, Resources: r.Resources, ResourceNames: r.ResourceNames})
			}
		}
		grants = append(grants, grant)
	}
	return grants, nil
}
