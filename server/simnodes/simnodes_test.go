package simnodes_test

import (
	"bufio"
	"io"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sqube/sqube/server/controlplane"
	"github.com/sqube/sqube/server/servertest"
	"github.com/sqube/sqube/server/simnodes"
	"github.com/sqube/sqube/test/harness"
)

// TestNodes runs workloads on simulated nodes.
func TestNodes(t *testing.T) {
	s := servertest.Run(t, servertest.Options{ControlPlane: controlplane.All})
	c := kubernetes.NewForConfigOrDie(s.Config)
	nodes := s.Nodes(t, simnodes.Options{Count: 2, Scripts: []simnodes.Script{
		{Labels: "job-name=import", Runs: []simnodes.Run{{simnodes.Log("no database"), simnodes.Exit(1)}, {simnodes.Exit(0)}}},
		{Labels: "app=never", Runs: []simnodes.Run{{simnodes.Unready()}}},
		{Labels: "app=talking", Runs: []simnodes.Run{{simnodes.Log("one"), simnodes.Log("two")}}, Stop: simnodes.Run{simnodes.Log("bye"), simnodes.Exit(0)}},
	}})
	ns := "default"

	t.Run("a rollout finishes", func(t *testing.T) {
		t.Parallel()
		if _, err := c.AppsV1().Deployments(ns).Create(t.Context(), deployment("web", 10), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, "10 Pods are available", func() bool {
			d, err := c.AppsV1().Deployments(ns).Get(t.Context(), "web", metav1.GetOptions{})
			return err == nil && d.Status.AvailableReplicas == 10
		})
		pods := list(t, c, "app=web")
		var addresses []string
		for _, pod := range pods {
			addresses = append(addresses, pod.Status.PodIP)
		}
		if slices.Sort(addresses); len(slices.Compact(addresses)) != 10 {
			t.Errorf("10 Pods have the addresses %v", addresses)
		}
	})
	t.Run("a Job whose container fails once", func(t *testing.T) {
		t.Parallel()
		if _, err := c.BatchV1().Jobs(ns).Create(t.Context(), job("import", corev1.RestartPolicyOnFailure), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, "the Job is complete", func() bool {
			j, err := c.BatchV1().Jobs(ns).Get(t.Context(), "import", metav1.GetOptions{})
			return err == nil && j.Status.Succeeded == 1 && j.Status.CompletionTime != nil
		})
		if pods := list(t, c, "job-name=import"); len(pods) != 1 || pods[0].Status.ContainerStatuses[0].RestartCount != 1 {
			t.Errorf("its Pods are %v", pods)
		}
	})
	t.Run("a Pod that is not ready until the test says so", func(t *testing.T) {
		t.Parallel()
		pod := create(t, c, newPod("never"), running)
		if is := ready(pod); is.Status != corev1.ConditionFalse || is.Reason != "ContainersNotReady" {
			t.Errorf("it is ready: %v", is)
		}
		harness.Must(t, nodes.Play(ns, pod.Name, "main", simnodes.Ready()))
		harness.Eventually(t, "the Pod is ready", func() bool {
			pod, err := c.CoreV1().Pods(ns).Get(t.Context(), pod.Name, metav1.GetOptions{})
			return err == nil && ready(pod).Status == corev1.ConditionTrue
		})
	})
	t.Run("logs, until a Pod is deleted", func(t *testing.T) {
		t.Parallel()
		pod := create(t, c, newPod("talking"), running)
		stream, err := c.CoreV1().Pods(ns).GetLogs(pod.Name, &corev1.PodLogOptions{Follow: true, TailLines: new(int64(1))}).Stream(t.Context())
		harness.Must(t, err)
		defer stream.Close()
		lines := bufio.NewScanner(stream)
		for _, want := range []string{"two", "three"} {
			if !lines.Scan() || lines.Text() != want {
				t.Fatalf("the line is %q instead of %q: %v", lines.Text(), want, lines.Err())
			}
			if want == "two" {
				harness.Must(t, nodes.Play(ns, pod.Name, "main", simnodes.Log("three")))
			}
		}
		if first, _, _ := strings.Cut(logs(t, c, pod.Name, corev1.PodLogOptions{Timestamps: true}), "\n"); !strings.HasSuffix(first, "Z one") {
			t.Errorf("the first line with its time is %q", first)
		}
		harness.Must(t, c.CoreV1().Pods(ns).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}))
		if !lines.Scan() || lines.Text() != "bye" || lines.Scan() {
			t.Errorf("the last line is %q: %v", lines.Text(), lines.Err())
		}
		harness.Eventually(t, "the Pod is gone", func() bool {
			_, err := c.CoreV1().Pods(ns).Get(t.Context(), pod.Name, metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		})
	})
}

func running(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning }

func ready(pod *corev1.Pod) corev1.PodCondition {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition
		}
	}
	return corev1.PodCondition{}
}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"app": name}}
}

func spec(policy corev1.RestartPolicy) corev1.PodSpec {
	return corev1.PodSpec{RestartPolicy: policy, Containers: []corev1.Container{{Name: "main", Image: "image"}}}
}

func newPod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: meta(name), Spec: spec(corev1.RestartPolicyAlways)}
}

func deployment(name string, replicas int32) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: meta(name), Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: meta(name).Labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: meta(name).Labels}, Spec: spec(corev1.RestartPolicyAlways)},
	}}
}

func job(name string, policy corev1.RestartPolicy) *batchv1.Job {
	return &batchv1.Job{ObjectMeta: meta(name), Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: spec(policy)}}}
}

// create creates a Pod and returns it when it is as wanted.
func create(t *testing.T, c kubernetes.Interface, pod *corev1.Pod, is func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	harness.Eventually(t, "the service account exists", func() bool {
		_, err := c.CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	})
	pod, err := c.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	harness.Must(t, err)
	harness.Eventually(t, "the Pod "+pod.Name+" is as wanted", func() bool {
		found, err := c.CoreV1().Pods(pod.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
		if err == nil {
			pod = found
		}
		return err == nil && is(pod)
	})
	return pod
}

func list(t *testing.T, c kubernetes.Interface, selector string) []corev1.Pod {
	t.Helper()
	pods, err := c.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: selector})
	harness.Must(t, err)
	return pods.Items
}

func logs(t *testing.T, c kubernetes.Interface, pod string, o corev1.PodLogOptions) string {
	t.Helper()
	stream, err := c.CoreV1().Pods("default").GetLogs(pod, &o).Stream(t.Context())
	harness.Must(t, err)
	defer stream.Close()
	text, err := io.ReadAll(stream)
	harness.Must(t, err)
	return string(text)
}
