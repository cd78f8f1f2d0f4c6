package virtual

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/sqube/sqube/server/controlplane"
	"github.com/sqube/sqube/server/servertest"
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
			if err != nil {
				t.Fatal(err)
			}
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
