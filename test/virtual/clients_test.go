package virtual

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"

	"github.com/sqube/sqube/server/servertest"
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
			if err != nil {
				t.Fatal(err)
			}
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
			if err != nil {
				t.Fatal(err)
			}
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
