package virtual

import (
	"context"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/sqube/sqube/server/controlplane"
	"github.com/sqube/sqube/server/servertest"
	"github.com/sqube/sqube/server/simnodes"
	"github.com/sqube/sqube/test/harness"
)

var podMetrics = schema.GroupVersionResource{Group: "metrics.k8s.io", Version: "v1beta1", Resource: "pods"}

// TestScaleDown has a HorizontalPodAutoscaler whose Pods have less to do at once. It waits for its stabilization window before it scales
// down. Custom resources stand in for metrics-server: each sample is an object.
func TestScaleDown(t *testing.T) {
	o := servertest.Options{ControlPlane: controlplane.All, CRDs: []string{"testdata/podmetrics.yaml"}}
	inBubble(t, o, func(t *testing.T, s *servertest.Server, c kubernetes.Interface) {
		s.Nodes(t, simnodes.Options{})
		deploy(t, c, 4, nil)
		_, err := c.AutoscalingV2().HorizontalPodAutoscalers("default").Create(t.Context(), &autoscalingv2.HorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Name: "web"},
			Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
				ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
				MinReplicas:    ptr.To[int32](1), MaxReplicas: 10,
				Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
					Name:   corev1.ResourceCPU,
					Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: resource.NewQuantity(1, resource.DecimalSI)},
				}}},
			},
		}, metav1.CreateOptions{})
		harness.Must(t, err)
		samples := dynamic.NewForConfigOrDie(s.Config).Resource(podMetrics).Namespace("default")
		sample := func(usage string) {
			pods, err := c.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
			harness.Must(t, err)
			for _, pod := range pods.Items {
				object := &unstructured.Unstructured{Object: map[string]any{
					"apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics",
					"metadata":  map[string]any{"name": pod.Name, "labels": map[string]any{"app": "web"}},
					"timestamp": time.Now().UTC().Format(time.RFC3339), "window": "30s",
					"containers": []any{map[string]any{"name": "main", "usage": map[string]any{"cpu": usage}}},
				}}
				if _, err := samples.Apply(t.Context(), pod.Name, object, metav1.ApplyOptions{FieldManager: "sampler", Force: true}); err != nil {
					t.Fatal(err)
				}
			}
		}
		replicas := func(want int32, usage string) func(context.Context) (bool, error) {
			return func(ctx context.Context) (bool, error) {
				sample(usage)
				now, err := c.AppsV1().Deployments("default").Get(ctx, "web", metav1.GetOptions{})
				return err == nil && *now.Spec.Replicas == want, err
			}
		}
		time.Sleep(time.Minute)
		within(t, 10*time.Minute, 15*time.Second, "8 replicas", replicas(8, "2"))
		took := within(t, time.Hour, 15*time.Second, "1 replica", replicas(1, "10m"))
		if took < 5*time.Minute || took > 7*time.Minute {
			t.Errorf("scaled down after %s", took)
		}
	})
}
