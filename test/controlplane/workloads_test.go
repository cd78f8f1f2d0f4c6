package controlplane

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

func client(t *testing.T, s *sqube.Server) kubernetes.Interface {
	t.Helper()
	config := s.Config(t)
	config.QPS = -1
	c, err := kubernetes.NewForConfig(config)
	harness.Must(t, err)
	return c
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

func undeploy(t *testing.T, c kubernetes.Interface, name string) {
	harness.Must(t, c.AppsV1().Deployments("default").Delete(t.Context(), name, metav1.DeleteOptions{}))
	harness.Eventually(t, "its Pods are gone", func() bool {
		pods, err := c.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + name})
		return err == nil && len(pods.Items) == 0
	})
}
