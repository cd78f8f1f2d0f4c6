package access

import (
	"encoding/base64"
	"net/http"
	"reflect"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes/fake"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/apis/authentication"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/sqube/sqube/test/harness"
)

// dependence is an object with which a token becomes invalid.
type dependence struct {
	resource schema.GroupVersionResource
	object   runtime.Object
	next     runtime.Object // another one of that name
	bind     func(*bindings)
}

// bindings are what upstream can bind a token to.
type bindings struct {
	pod        *core.Pod
	secret     *core.Secret
	node       *core.Node
	validating *admissionregistrationv1.ValidatingWebhookConfiguration
	mutating   *admissionregistrationv1.MutatingWebhookConfiguration
}

// dependences returns what a token can depend on, by the method with which upstream's validator reads it.
func dependences() map[string]dependence {
	inside, insideNext := metav1.ObjectMeta{Namespace: "ns", Name: "x", UID: "u-2"}, metav1.ObjectMeta{Namespace: "ns", Name: "x", UID: "u-3"}
	outside, outsideNext := metav1.ObjectMeta{Name: "x", UID: "u-2"}, metav1.ObjectMeta{Name: "x", UID: "u-3"}
	nextAccount := account.DeepCopy()
	nextAccount.UID = "u-3"
	resource, webhooks := corev1.SchemeGroupVersion.WithResource, admissionregistrationv1.SchemeGroupVersion.WithResource
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: outside}
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: outside}
	return map[string]dependence{
		"GetServiceAccount": {resource("serviceaccounts"), &account, nextAccount, func(*bindings) {}},
		"GetPod": {resource("pods"), &corev1.Pod{ObjectMeta: inside}, &corev1.Pod{ObjectMeta: insideNext},
			func(b *bindings) { b.pod = &core.Pod{ObjectMeta: inside} }},
		"GetSecret": {resource("secrets"), &corev1.Secret{ObjectMeta: inside}, &corev1.Secret{ObjectMeta: insideNext},
			func(b *bindings) { b.secret = &core.Secret{ObjectMeta: inside} }},
		"GetNode": {resource("nodes"), &corev1.Node{ObjectMeta: outside}, &corev1.Node{ObjectMeta: outsideNext},
			func(b *bindings) { b.node = &core.Node{ObjectMeta: outside} }},
		"GetValidatingWebhookConfiguration": {webhooks("validatingwebhookconfigurations"), validating,
			&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: outsideNext}, func(b *bindings) { b.validating = validating }},
		"GetMutatingWebhookConfiguration": {webhooks("mutatingwebhookconfigurations"), mutating,
			&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: outsideNext}, func(b *bindings) { b.mutating = mutating }},
	}
}

// TestTokensAreRevoked uses tokens before and after what they depend on is deleted, and created again, for all that upstream's
// validator reads. Upstream's cache would accept the tokens for the whole test.
func TestTokensAreRevoked(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.APIServerWebhookAuthenticationToken, true)
	all := dependences()
	for method := range reflect.TypeFor[serviceaccount.ServiceAccountTokenGetter]().Methods() {
		on, ok := all[method.Name]
		if !ok {
			t.Errorf("upstream binds tokens to what %s returns: add it to dependences", method.Name)
			continue
		}
		t.Run(method.Name, func(t *testing.T) { testRevoked(t, on) })
	}
}

func testRevoked(t *testing.T, on dependence) {
	objects := []runtime.Object{&account}
	if on.object != objects[0] {
		objects = append(objects, on.object)
	}
	f := setUp(t, nil, objects...)
	f.options.Authentication.TokenSuccessCacheTTL = time.Hour
	a, token := f.authentication(t), boundToken(t, f, on)

	ofSocket := func() *http.Request {
		r := request("")
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", "websocket")
		r.Header.Set("Sec-WebSocket-Protocol", "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io."+base64.RawURLEncoding.EncodeToString([]byte(token)))
		return r
	}
	const robot = "system:serviceaccount:ns:robot"
	if name := userOf(a, request(token)); name != robot {
		t.Fatalf("the token authenticates as %q", name)
	}
	if name := userOf(a, ofSocket()); name != robot {
		t.Fatalf("in a subprotocol of a WebSocket, the token authenticates as %q", name)
	}
	objectsOf := f.cluster.Client.(*fake.Clientset).Tracker()
	namespace := on.object.(metav1.Object).GetNamespace()
	harness.Must(t, objectsOf.Delete(on.resource, namespace, on.object.(metav1.Object).GetName()))
	harness.Eventually(t, "the token is refused", func() bool { return userOf(a, request(token)) == "" })
	harness.Must(t, objectsOf.Create(on.resource, on.next, namespace))
	for what, r := range map[string]*http.Request{"the token": request(token), "the token in a subprotocol of a WebSocket": ofSocket()} {
		if name := userOf(a, r); name != "" {
			t.Errorf("after another object of that name was created, %s authenticates as %q", what, name)
		}
	}
}

// TestSecretsTokensAreRevoked uses tokens before and after the Secret that has them is deleted.
func TestSecretsTokensAreRevoked(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x"}, Type: corev1.SecretTypeServiceAccountToken}
	door := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-abcdef"}, Type: corev1.SecretTypeBootstrapToken,
		Data: map[string][]byte{"token-id": []byte("abcdef"), "token-secret": []byte("0123456789abcdef"), "usage-bootstrap-authentication": []byte("true")},
	}
	f := setUp(t, []string{"--enable-bootstrap-token-auth"}, &account, door)
	f.options.Authentication.TokenSuccessCacheTTL = time.Hour
	accounts, err := NewServiceAccounts(t.Context(), t.Context(), f.options)
	harness.Must(t, err)
	claims, private := serviceaccount.LegacyClaims(account, *secret)
	legacy, err := serviceaccount.JWTTokenGenerator(serviceaccount.LegacyIssuer, accounts.Key)
	harness.Must(t, err)
	text, err := legacy.GenerateToken(t.Context(), claims, private)
	harness.Must(t, err)
	secret.Data = map[string][]byte{corev1.ServiceAccountTokenKey: []byte(text)}
	objects := f.cluster.Client.(*fake.Clientset).Tracker()
	harness.Must(t, objects.Add(secret))

	a := f.authentication(t)
	for _, test := range []struct {
		secret      *corev1.Secret
		token, user string
	}{
		{secret, text, "system:serviceaccount:ns:robot"},
		{door, "abcdef.0123456789abcdef", "system:bootstrap:abcdef"},
	} {
		if name := userOf(a, request(test.token)); name != test.user {
			t.Fatalf("the token in %s authenticates as %q", test.secret.Name, name)
		}
		harness.Must(t, objects.Delete(corev1.SchemeGroupVersion.WithResource("secrets"), test.secret.Namespace, test.secret.Name))
		harness.Eventually(t, "the token is refused", func() bool { return userOf(a, request(test.token)) == "" })
	}
}

// boundToken returns a token of the account that depends on an object.
func boundToken(t testing.TB, f *fixture, on dependence) string {
	t.Helper()
	var to bindings
	on.bind(&to)
	accounts, err := NewServiceAccounts(t.Context(), t.Context(), f.options)
	harness.Must(t, err)
	attestations := map[string]authentication.AttestationValue{authentication.AttestationAdmissionReviewAPIGroups: {"apps"}}
	claims, private, err := serviceaccount.Claims(core.ServiceAccount{ObjectMeta: account.ObjectMeta}, to.pod, to.secret, to.node, to.validating, to.mutating,
		600, 0, []string{DefaultIssuer}, attestations)
	harness.Must(t, err)
	token, err := accounts.Generator.GenerateToken(t.Context(), claims, private)
	harness.Must(t, err)
	return token
}
