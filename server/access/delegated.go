package access

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/path"
	authorizerunion "k8s.io/apiserver/pkg/authorization/union"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/plugin/pkg/authorizer/webhook"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/server/loopback"
)

const (
	// delegatedTTL is how long answers of the other cluster are remembered.
	delegatedTTL = 10 * time.Second
	// delegatedTimeout limits one question.
	delegatedTimeout = 10 * time.Second
	// delegatedQPS is that of an API server's loopback client.
	delegatedQPS, delegatedBurst = 50, 100
)

// healthPaths are the paths that probes may read while the other cluster does not answer.
var healthPaths = []string{"/healthz", "/livez", "/readyz"}

// NewDelegated asks another cluster who the users are, and what they may do, by TokenReviews and SubjectAccessReviews of the user of config. It
// accepts client certificates of the server's own CA (completed options have it), and of that cluster's if the user may read it: as the
// cluster's aggregated API servers do. It follows changes of that until ctx ends.
func NewDelegated(ctx context.Context, o *Options, config *rest.Config) (*Authentication, *Authorization, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst, config.Timeout = delegatedQPS, delegatedBurst, delegatedTimeout
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("setting up authentication: %w", err)
	}
	own := o.Authentication.ClientCert.CAContentProvider
	authorities := []dynamiccertificates.CAContentProvider{own}
	const namespace, name, key = metav1.NamespaceSystem, "extension-apiserver-authentication", "client-ca-file"
	if _, err := client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{}); !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
		theirs, err := dynamiccertificates.NewDynamicCAFromConfigMapController("mirror", namespace, name, key, client)
		if err != nil {
			return nil, nil, fmt.Errorf("setting up authentication: %w", err)
		}
		authorities = append(authorities, theirs)
	}
	ca := dynamiccertificates.NewUnionCAContentProvider(authorities...)
	backoff := options.DefaultAuthWebhookRetryBackoff()
	recognized, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous: &apiserver.AnonymousAuthConfig{Enabled: true}, TokenAccessReviewClient: client.AuthenticationV1(), TokenAccessReviewTimeout: delegatedTimeout,
		WebhookRetryBackoff: backoff, CacheTTL: delegatedTTL, ClientCertificateCAContentProvider: ca,
	}.New()
	if err != nil {
		return nil, nil, fmt.Errorf("setting up authentication: %w", err)
	}
	asked, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client.AuthorizationV1(), AllowCacheTTL: delegatedTTL, DenyCacheTTL: delegatedTTL, WebhookRetryBackoff: backoff,
	}.New()
	if err != nil {
		return nil, nil, fmt.Errorf("setting up authorization: %w", err)
	}
	healthy, err := path.NewAuthorizer(healthPaths)
	if err != nil {
		return nil, nil, fmt.Errorf("setting up authorization: %w", err)
	}
	all, err := authorizerunion.New(
		authorizerunion.NamedAuthorizer{AuthorizerName: "privileged-groups", Authorizer: authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup)},
		authorizerunion.NamedAuthorizer{AuthorizerName: "health", Authorizer: healthy}, authorizerunion.NamedAuthorizer{AuthorizerName: "mirrored-cluster", Authorizer: asked})
	if err != nil {
		return nil, nil, fmt.Errorf("setting up authorization: %w", err)
	}
	authentication := &Authentication{Authenticator: union.New(loopback.Authenticator, newCertificates(recognized, proxyHeaders(nil))), ClientCA: ca, UserCA: own}
	return authentication, &Authorization{Authorizer: all, Rules: asked.(*webhook.WebhookAuthorizer)}, nil
}
