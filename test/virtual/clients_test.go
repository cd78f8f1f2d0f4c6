package virtual

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509/pkix"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"

	"github.com/sqube/sqube/server/controlplane"
	"github.com/sqube/sqube/server/servertest"
	"github.com/sqube/sqube/test/harness"
)

// TestTokens has a client that gets a new token of its service account every hour, for a week, and uses each one to its end.
func TestTokens(t *testing.T) {
	inBubble(t, servertest.Options{NoControllers: true}, func(t *testing.T, s *servertest.Server, c kubernetes.Interface) {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "app"}}
		if _, err := c.CoreV1().ServiceAccounts("default").Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		var token string
		config := rest.AnonymousClientConfig(s.Config)
		config.Dial = s.Config.Dial
		config.Wrap(func(transport http.RoundTripper) http.RoundTripper {
			return withToken{transport, &token}
		})
		app := kubernetes.NewForConfigOrDie(config)
		review := func() error {
			_, err := app.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
			return err
		}
		for range 7 * 24 {
			issued, err := c.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "app", &authenticationv1.TokenRequest{
				Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](3600)},
			}, metav1.CreateOptions{})
			harness.Must(t, err)
			token = issued.Status.Token
			time.Sleep(time.Hour - time.Second)
			if err := review(); err != nil {
				t.Fatalf("a token that is valid for another second: %v", err)
			}
			time.Sleep(2 * time.Minute) // clocks may differ by a minute
			if err := review(); !apierrors.IsUnauthorized(err) {
				t.Fatalf("a token that has expired: %v", err)
			}
		}
	})
}

// TestCertificate has a user who requests a client certificate for a day. It is signed once it is approved, and works until then.
func TestCertificate(t *testing.T) {
	selected := controlplane.With("--controllers=certificatesigningrequest-signing-controller")
	inBubble(t, servertest.Options{ControlPlane: selected}, func(t *testing.T, s *servertest.Server, c kubernetes.Interface) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		harness.Must(t, err)
		private, err := keyutil.MarshalPrivateKeyToPEM(key)
		harness.Must(t, err)
		text, err := cert.MakeCSR(key, &pkix.Name{CommonName: "jane"}, nil, nil)
		harness.Must(t, err)
		requests := c.CertificatesV1().CertificateSigningRequests()
		request, err := requests.Create(t.Context(), &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: "jane"},
			Spec: certificatesv1.CertificateSigningRequestSpec{
				Request: text, SignerName: certificatesv1.KubeAPIServerClientSignerName, ExpirationSeconds: ptr.To[int32](24 * 3600),
				Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
			},
		}, metav1.CreateOptions{})
		harness.Must(t, err)
		request.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
			Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Tested",
		}}
		if _, err := requests.UpdateApproval(t.Context(), request.Name, request, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		within(t, time.Minute, time.Second, "the certificate", func(ctx context.Context) (bool, error) {
			request, err = requests.Get(ctx, request.Name, metav1.GetOptions{})
			return err == nil && len(request.Status.Certificate) > 0, err
		})
		whoami := func() (string, error) {
			config := rest.AnonymousClientConfig(s.Config) // a new connection
			config.Dial, config.CertData, config.KeyData = s.Config.Dial, request.Status.Certificate, private
			review, err := kubernetes.NewForConfigOrDie(config).AuthenticationV1().SelfSubjectReviews().Create(
				t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
			if err != nil {
				return "", err
			}
			return review.Status.UserInfo.Username, nil
		}
		issued, err := cert.ParseCertsPEM(request.Status.Certificate)
		harness.Must(t, err)
		if left := time.Until(issued[0].NotAfter); left < 23*time.Hour || left > 24*time.Hour {
			t.Errorf("the certificate is valid for %s", left)
		}
		time.Sleep(time.Until(issued[0].NotAfter) - time.Minute)
		if name, err := whoami(); err != nil || name != "jane" {
			t.Errorf("a minute before its end, the certificate is that of %q, %v", name, err)
		}
		time.Sleep(2 * time.Minute)
		if name, err := whoami(); !apierrors.IsUnauthorized(err) {
			t.Errorf("a minute after its end, the certificate is that of %q, %v", name, err)
		}
	})
}

// withToken adds a token to requests.
type withToken struct {
	http.RoundTripper
	token *string
}

// RoundTrip implements http.RoundTripper.
func (w withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+*w.token)
	return w.RoundTripper.RoundTrip(r)
}

// TestLeaderElection has two replicas of a controller. The one that leads stops renewing its Lease, and the other one takes over when it
// has expired. What the controller does fails at first and is tried again with exponential back-off.
func TestLeaderElection(t *testing.T) {
	inBubble(t, servertest.Options{NoControllers: true}, func(t *testing.T, s *servertest.Server, c kubernetes.Interface) {
		const lease, deadline, retry = 15 * time.Second, 10 * time.Second, 2 * time.Second
		var leads atomic.Pointer[string]
		replica := func(name string) (stop func()) {
			ctx, cancel := context.WithCancel(t.Context())
			elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
				Lock: &resourcelock.LeaseLock{
					LeaseMeta:  metav1.ObjectMeta{Namespace: "default", Name: "controller"},
					Client:     c.CoordinationV1(),
					LockConfig: resourcelock.ResourceLockConfig{Identity: name},
				},
				LeaseDuration: lease, RenewDeadline: deadline, RetryPeriod: retry,
				Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { leads.Store(&name) }, OnStoppedLeading: func() {}},
			})
			harness.Must(t, err)
			go elector.Run(ctx)
			return cancel
		}
		leader := func(name string) func(context.Context) (bool, error) {
			return func(context.Context) (bool, error) { now := leads.Load(); return now != nil && *now == name, nil }
		}
		stop := replica("a")
		within(t, time.Minute, time.Second, "a leads", leader("a"))
		defer replica("b")()
		time.Sleep(time.Hour)
		if *leads.Load() != "a" {
			t.Fatal("the leader has changed")
		}
		stop()
		if took := within(t, time.Minute, time.Second, "b leads", leader("b")); took < lease-retry {
			t.Errorf("b leads %s after a has last renewed its Lease", took)
		}
	})
}

// TestBackOff has a controller whose work fails ten times, with the default back-off of controllers.
func TestBackOff(t *testing.T) {
	inBubble(t, servertest.Options{NoControllers: true}, func(t *testing.T, _ *servertest.Server, c kubernetes.Interface) {
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Hour))
		defer queue.ShutDown()
		began := time.Now()
		queue.Add("default/database")
		for range 10 { // until somebody makes what the controller waits for
			name, _ := queue.Get()
			if _, err := c.CoreV1().Secrets("default").Get(t.Context(), "database", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Fatal(err)
			}
			queue.AddRateLimited(name)
			queue.Done(name)
		}
		if _, err := c.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "database"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		name, _ := queue.Get()
		if took := time.Since(began).Round(time.Second); took != (1<<10-1)*time.Second {
			t.Errorf("%s was tried for the eleventh time after %s", name, took)
		}
		queue.Done(name)
	})
}
