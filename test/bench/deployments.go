package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// perNamespace is the maximum number of Deployments in a namespace.
const perNamespace = 10

// deployment is the name of a numbered Deployment.
type deployment struct{ namespace, name string }

func deploymentOf(i int) deployment {
	return deployment{fmt.Sprintf("bench-%d", i/perNamespace), fmt.Sprintf("shop-%d", i)}
}

// selected are the labels of its Pods.
func (d deployment) selected() map[string]string { return map[string]string{"app": d.name} }

// makeNamespaces creates the namespaces of Deployments, and waits until Pods can be created there.
func (c *cluster) makeNamespaces(ctx context.Context, deployments int) error {
	for ; c.namespaces*perNamespace < deployments; c.namespaces++ {
		name := deploymentOf(c.namespaces * perNamespace).namespace
		if err := persist(ctx, func() error {
			_, err := c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			return err
		}); err != nil {
			return err
		}
		if err := until(ctx, "the namespace has its service account", func() (bool, error) {
			_, err := c.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
			return err == nil, err
		}); err != nil {
			return err
		}
	}
	return nil
}

// deploy creates a Deployment, whose Pods run on the node if one is named, and are scheduled otherwise.
func (c *cluster) deploy(ctx context.Context, i, replicas int, node string) error {
	d, count := deploymentOf(i), int32(replicas)
	pod := podTemplate()
	pod.Labels["app"], pod.Spec.NodeName = d.name, node
	delete(pod.Labels, "pod-template-hash") // the Deployment's own
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: d.name, Labels: d.selected()},
		Spec: appsv1.DeploymentSpec{
			Replicas: &count, Selector: &metav1.LabelSelector{MatchLabels: d.selected()},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels, Annotations: pod.Annotations}, Spec: pod.Spec},
		},
	}
	return persist(ctx, func() error {
		_, err := c.AppsV1().Deployments(d.namespace).Create(ctx, deployment, metav1.CreateOptions{})
		return err
	})
}

// expose creates a Service that selects a Deployment's Pods.
func (c *cluster) expose(ctx context.Context, i int) error {
	d := deploymentOf(i)
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: d.name, Labels: d.selected()},
		Spec: corev1.ServiceSpec{
			Selector: d.selected(), Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromString("http")}},
		},
	}
	return persist(ctx, func() error {
		_, err := c.CoreV1().Services(d.namespace).Create(ctx, service, metav1.CreateOptions{})
		return err
	})
}

// patch changes a Deployment by a patch that may be sent more than once.
func (c *cluster) patch(ctx context.Context, i int, patch string) error {
	d := deploymentOf(i)
	return persist(ctx, func() error {
		_, err := c.AppsV1().Deployments(d.namespace).Patch(ctx, d.name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	})
}

// restart makes a Deployment replace its Pods, like kubectl rollout restart.
func (c *cluster) restart(ctx context.Context, i int) error {
	return c.patch(ctx, i, fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":%q}}}}}`, time.Now().Format(time.RFC3339Nano)))
}

func (c *cluster) resize(ctx context.Context, i, replicas int) error {
	return c.patch(ctx, i, fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
}

// settled waits until all Deployments have their replicas, and their Pods were seen running.
func (c *cluster) settled(ctx context.Context, pods int) error {
	return until(ctx, "all Deployments have their replicas", func() (bool, error) {
		if running, waiting := c.starts.counts(); running != pods || waiting > 0 {
			return false, fmt.Errorf("%d Pods run and %d wait, of %d", running, waiting, pods)
		}
		list, err := c.AppsV1().Deployments("").List(ctx, listCached)
		if err != nil {
			return false, err
		}
		for i := range list.Items {
			d := &list.Items[i]
			if d.Status.ObservedGeneration != d.Generation || d.Status.ReadyReplicas != *d.Spec.Replicas || d.Status.UpdatedReplicas != *d.Spec.Replicas {
				return false, fmt.Errorf("%s/%s: %+v", d.Namespace, d.Name, d.Status)
			}
		}
		return true, nil
	})
}

// paced waits for as long as that many Pods take to start or end at a pace per second. next is the start of that time.
func paced(ctx context.Context, next *time.Time, pods, pace int) error {
	*next = next.Add(time.Duration(pods) * time.Second / time.Duration(pace))
	return wait(ctx, time.Until(*next))
}

// scheduledOf is of how many Deployments one has Pods that are scheduled, restarted and resized.
const scheduledOf = 10

// churn restarts and resizes such Deployments, of the first ones, in turn until the end, at a pace of Pods per second.
func (c *cluster) churn(ctx context.Context, n sizes, end time.Time) error {
	scheduled, half := (n.deployments()+scheduledOf-1)/scheduledOf, n.Replicas/2
	next := time.Now()
	for time.Now().Before(end) {
		i, j := c.churned%scheduled*scheduledOf, (c.churned+scheduled/2)%scheduled*scheduledOf
		c.churned++
		for _, step := range []struct {
			pods int
			do   func() error
		}{
			{n.Replicas, func() error { return c.restart(ctx, i) }},
			{half, func() error { return c.resize(ctx, j, n.Replicas-half) }},
			{half, func() error { return c.resize(ctx, j, n.Replicas) }},
		} {
			if err := step.do(); err != nil {
				return err
			}
			if err := paced(ctx, &next, step.pods, n.Pace); err != nil {
				return err
			}
		}
	}
	return nil
}

// deployments is how many Deployments there are.
func (s sizes) deployments() int { return max(1, s.Pods/s.Replicas) }

// sorted returns the durations in order.
func sorted(times []time.Duration) []time.Duration {
	slices.Sort(times)
	return times
}
