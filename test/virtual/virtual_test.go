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
