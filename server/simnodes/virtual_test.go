package simnodes_test

import (
	"bufio"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sqube/sqube/server/controlplane"
	"github.com/sqube/sqube/server/servertest"
	"github.com/sqube/sqube/server/simnodes"
	"github.com/sqube/sqube/test/harness"
)

// TestVirtual checks what takes long: a crash loop, a Job whose Pods fail after 15 minutes, a node that falls silent until its Pod is evicted, a log that is
// followed meanwhile, and the Leases that keep the other nodes ready.
func TestVirtual(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := servertest.Run(t, servertest.Options{Virtual: true, ControlPlane: controlplane.All})
		c := kubernetes.NewForConfigOrDie(s.Config)
		nodes := s.Nodes(t, simnodes.Options{Count: 2, Scripts: []simnodes.Script{
			{Labels: "job-name=import", First: 2, Runs: []simnodes.Run{{simnodes.Wait(15 * time.Minute), simnodes.Exit(1)}}},
			{Labels: "job-name=import", Runs: []simnodes.Run{{simnodes.Wait(15 * time.Minute), simnodes.Exit(0)}}},
			{Name: "crashing", Runs: []simnodes.Run{
				{simnodes.Log("first"), simnodes.ExitWith(137, "OOMKilled", "too big")}, {simnodes.Log("again"), simnodes.Exit(2)},
			}},
			{Name: "talking", Runs: []simnodes.Run{{simnodes.Wait(time.Hour), simnodes.Log("an hour later")}}},
		}})
		pods := c.CoreV1().Pods("default")
		if _, err := c.BatchV1().Jobs("default").Create(t.Context(), job("import", corev1.RestartPolicyNever), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		moving := newPod("moving")
		moving.Spec.NodeName = "node-0"
		for _, pod := range []*corev1.Pod{moving, newPod("talking"), newPod("crashing")} {
			if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(5 * time.Second)
		crashLoop(t, c)
		stream, err := pods.GetLogs("talking", &corev1.PodLogOptions{Follow: true}).Stream(t.Context())
		harness.Must(t, err)
		defer stream.Close()

		if lines := bufio.NewScanner(stream); !lines.Scan() || lines.Text() != "an hour later" {
			t.Errorf("the line is %q: %v", lines.Text(), lines.Err())
		}
		time.Sleep(10 * time.Minute)
		if j, err := c.BatchV1().Jobs("default").Get(t.Context(), "import", metav1.GetOptions{}); err != nil || j.Status.Failed != 2 || j.Status.Succeeded != 1 {
			t.Errorf("the Job is %v: %v", j.Status, err)
		}
		if events, err := c.CoreV1().Events("").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=NodeNotReady"}); err != nil || len(events.Items) > 0 {
			t.Errorf("nodes were not ready: %v: %v", events.Items, err)
		}

		nodes.Silence("node-0")
		time.Sleep(10 * time.Minute)
		if pod, err := pods.Get(t.Context(), "moving", metav1.GetOptions{}); err != nil || pod.DeletionTimestamp == nil {
			t.Errorf("the Pod on the silent node is not evicted: %v", err)
		}
		nodes.Return("node-0")
		time.Sleep(time.Minute)
		if _, err := pods.Get(t.Context(), "moving", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("the evicted Pod: %v", err)
		}
		if node, err := c.CoreV1().Nodes().Get(t.Context(), "node-0", metav1.GetOptions{}); err != nil || len(node.Spec.Taints) > 0 {
			t.Errorf("the node that has returned has the taints %v: %v", node.Spec.Taints, err)
		}
	})
}

// crashLoop checks a Pod whose container has ended twice, and is to be restarted after 10 seconds.
func crashLoop(t *testing.T, c kubernetes.Interface) {
	t.Helper()
	pod, err := c.CoreV1().Pods("default").Get(t.Context(), "crashing", metav1.GetOptions{})
	if err != nil || len(pod.Status.ContainerStatuses) != 1 {
		t.Fatalf("the Pod is %v: %v", pod.Status, err)
	}
	status := pod.Status.ContainerStatuses[0]
	if status.RestartCount != 2 || status.State.Waiting == nil || status.State.Waiting.Reason != "CrashLoopBackOff" || status.LastTerminationState.Terminated.ExitCode != 2 {
		t.Errorf("its container is %v", status)
	}
	if got := logs(t, c, pod.Name, corev1.PodLogOptions{}); got != "again\n" {
		t.Errorf("its log is %q", got)
	}
	if got := logs(t, c, pod.Name, corev1.PodLogOptions{Previous: true}); got != "first\n" {
		t.Errorf("the log before is %q", got)
	}
}
