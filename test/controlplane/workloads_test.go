package controlplane

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/sqube/sqube/server/simnodes"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/fakenode"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestWorkloads runs workloads with one process and one node.
func TestWorkloads(t *testing.T) {
	t.Parallel()
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		t.Parallel()
		s := sqube.Start(t, sqube.Options{Datastore: engine.Datastore, Args: append(sqube.RightsSuffice(t),
			"--control-plane", "--allocate-node-cidrs", "--cluster-cidr=10.244.0.0/16", "--node-cidr-mask-size=25",
		)})
		c := client(t, s)
		fakenode.Join(t, s.Config(t), simnodes.Options{Names: []string{"board"}})
		t.Run("a node is ready and has a range of Pod addresses", func(t *testing.T) { nodeIsReady(t, c) })
		t.Run("a Deployment runs, a Service finds its Pods", func(t *testing.T) {
			deploy(t, c, "web", 3)
			finds(t, c, "web", 3)
		})
		t.Run("a node has room again when a Pod has ended", func(t *testing.T) { jobsFollow(t, c) })
		t.Run("dependents are deleted with their owner", func(t *testing.T) { undeploy(t, c, "web") })
		s.Stop(t)
	})
}

func client(t *testing.T, s *sqube.Server) kubernetes.Interface {
	t.Helper()
	config := s.Config(t)
	config.QPS = -1
	c, err := kubernetes.NewForConfig(config)
	harness.Must(t, err)
	return c
}

func nodeIsReady(t *testing.T, c kubernetes.Interface) {
	harness.Eventually(t, "the node has no taints and a range", func() bool {
		node, err := c.CoreV1().Nodes().Get(t.Context(), "board", metav1.GetOptions{})
		return err == nil && len(node.Spec.Taints) == 0 && node.Spec.PodCIDR == "10.244.0.0/25"
	})
}

func template(name, cpu string, labels map[string]string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: name, Image: "none", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
		}}}},
	}
}

// deploy creates a Deployment with a Service and waits until its Pods run.
func deploy(t *testing.T, c kubernetes.Interface, name string, replicas int32) {
	t.Helper()
	labels := map[string]string{"app": name}
	_, err := c.AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template(name, "10m", labels)},
	}, metav1.CreateOptions{})
	harness.Must(t, err)
	_, err = c.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	harness.Must(t, err)
	available(t, c, name, replicas)
}

func available(t *testing.T, c kubernetes.Interface, name string, replicas int32) {
	t.Helper()
	harness.Eventually(t, "Deployment "+name+" is available", func() bool {
		d, err := c.AppsV1().Deployments("default").Get(t.Context(), name, metav1.GetOptions{})
		return err == nil && d.Status.ObservedGeneration == d.Generation && d.Status.AvailableReplicas == replicas
	})
}

func finds(t *testing.T, c kubernetes.Interface, service string, pods int) {
	t.Helper()
	harness.Eventually(t, "Service "+service+" finds its Pods", func() bool {
		slices, err := c.DiscoveryV1().EndpointSlices("default").List(t.Context(), metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
		return err == nil && len(slices.Items) == 1 && len(slices.Items[0].Endpoints) == pods
	})
}

// jobsFollow runs a Job whose Pods need most of the node, one after the other.
func jobsFollow(t *testing.T, c kubernetes.Interface) {
	pod := template("part", "600m", nil)
	pod.Annotations = map[string]string{simnodes.RunAnnotation: "exit 0"}
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	job, err := c.BatchV1().Jobs("default").Create(t.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "parts"},
		Spec:       batchv1.JobSpec{Completions: ptr.To[int32](3), Parallelism: ptr.To[int32](3), Template: pod, TTLSecondsAfterFinished: ptr.To[int32](0)},
	}, metav1.CreateOptions{})
	harness.Must(t, err)
	harness.Eventually(t, "the Job has completed and is deleted", func() bool {
		_, err := c.BatchV1().Jobs("default").Get(t.Context(), job.Name, metav1.GetOptions{})
		return err != nil
	})
}

func undeploy(t *testing.T, c kubernetes.Interface, name string) {
	harness.Must(t, c.AppsV1().Deployments("default").Delete(t.Context(), name, metav1.DeleteOptions{}))
	harness.Eventually(t, "its Pods are gone", func() bool {
		pods, err := c.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + name})
		return err == nil && len(pods.Items) == 0
	})
}
