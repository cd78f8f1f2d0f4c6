package virtual

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/sqube/sqube/server/controlplane"
	"github.com/sqube/sqube/server/servertest"
	"github.com/sqube/sqube/test/harness"
)

// inBubble runs a test on a server of its own in a bubble.
func inBubble(t *testing.T, o servertest.Options, test func(t *testing.T, s *servertest.Server, c kubernetes.Interface)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o.Virtual = true
		s := servertest.Run(t, o)
		test(t, s, kubernetes.NewForConfigOrDie(s.Config))
	})
}

// within waits in steps, and returns how long it took until done returned true. It fails the test if that takes longer than limit.
func within(t *testing.T, limit, step time.Duration, what string, done func(context.Context) (bool, error)) time.Duration {
	t.Helper()
	began := time.Now()
	if err := wait.PollUntilContextTimeout(t.Context(), step, limit, true, done); err != nil {
		t.Fatalf("%s not within %s: %v", what, limit, err)
	}
	return time.Since(began)
}

// template returns a Pod template with one container.
func template(labels map[string]string, policy corev1.RestartPolicy) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec:       corev1.PodSpec{RestartPolicy: policy, Containers: []corev1.Container{{Name: "main", Image: "example"}}},
	}
}

// TestIdleDay has a control plane in which nobody does anything for a day. It writes nothing.
func TestIdleDay(t *testing.T) {
	inBubble(t, servertest.Options{ControlPlane: controlplane.All}, func(t *testing.T, _ *servertest.Server, c kubernetes.Interface) {
		version := func() string {
			list, err := c.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
			harness.Must(t, err)
			return list.ResourceVersion
		}
		time.Sleep(time.Minute) // to start
		before := version()
		time.Sleep(24 * time.Hour)
		if now := version(); now != before {
			t.Errorf("the resourceVersion has gone from %s to %s", before, now)
		}
	})
}

// TestBubbles starts servers inside and outside of bubbles, several at once.
func TestBubbles(t *testing.T) {
	if s, err := servertest.Start(servertest.Options{Virtual: true}); err == nil || !strings.Contains(err.Error(), "synctest.Test") {
		t.Errorf("a virtual server outside of a bubble: %v, %v", s, err)
	}
	synctest.Test(t, func(t *testing.T) {
		if s, err := servertest.Start(servertest.Options{}); err == nil || !strings.Contains(err.Error(), "Options.Virtual") {
			t.Errorf("a real server in a bubble: %v, %v", s, err)
		}
	})
	outside := servertest.Run(t, servertest.Options{NoControllers: true})
	t.Run("at once", func(t *testing.T) {
		for range 3 {
			t.Run("", func(t *testing.T) {
				inBubble(t, servertest.Options{}, func(t *testing.T, s *servertest.Server, c kubernetes.Interface) {
					time.Sleep(time.Hour)
					made, err := c.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "made"}}, metav1.CreateOptions{})
					harness.Must(t, err)
					if age := time.Since(made.CreationTimestamp.Time); age < 0 || age > time.Minute {
						t.Errorf("a new Namespace is %s old", age)
					}
				})
			})
		}
	})
	namespaces, err := kubernetes.NewForConfigOrDie(outside.Config).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	harness.Must(t, err)
	for _, namespace := range namespaces.Items {
		if namespace.Name == "made" || time.Since(namespace.CreationTimestamp.Time).Abs() > time.Hour {
			t.Errorf("the server outside has %s, of %s", namespace.Name, namespace.CreationTimestamp)
		}
	}
}
