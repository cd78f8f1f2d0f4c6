package trial

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sqube/sqube/server/controlplane"
	"github.com/sqube/sqube/server/servertest"
	"github.com/sqube/sqube/server/simnodes"
	"github.com/sqube/sqube/test/harness"
)

const zone = corev1.LabelTopologyZone

// TestWorld makes a copy of a cluster, and looks at what is simulated around it.
func TestWorld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "copy.db")
		before := source(t, file)
		o := Options{From: file, For: time.Hour}
		outside, err := prepareWebhooks(nil)
		harness.Must(t, err)
		w, err := o.begin(t.Context(), outside, nil)
		harness.Must(t, err)
		t.Cleanup(func() { harness.Must(t, w.Stop()) })
		t.Cleanup(w.nodes.Load().Stop)
		time.Sleep(10 * time.Minute)
		for _, pod := range podsOf(t, w.client, "") {
			if pod.ResourceVersion != before[pod.Name] {
				t.Errorf("Pod %s has been changed: %+v", pod.Name, pod.Status)
			}
		}
		checkLoad(t, w)
		checkVolumes(t, w)
		checkBalancers(t, w)
		checkReferences(t, w)
		checkNodes(t, w)
	})
}

// source makes the cluster that is copied into a file, and returns the resourceVersions of its Pods.
func source(t *testing.T, file string) map[string]string {
	s, err := servertest.Start(servertest.Options{Virtual: true, ControlPlane: controlplane.With("--controllers=*,-horizontal-pod-autoscaler-controller")})
	harness.Must(t, err)
	c := kubernetes.NewForConfigOrDie(s.Config)
	var joined []*simnodes.Nodes
	for _, name := range []string{"a", "b", "c"} {
		nodes, err := s.Join(t.Context(), simnodes.Options{Names: []string{"node-" + name}, Labels: map[string]string{zone: name}, Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("9")}})
		harness.Must(t, err)
		joined = append(joined, nodes)
	}
	joined[2].Silence("node-c")
	time.Sleep(10 * time.Minute)
	create(t, c, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "csi.example.com", VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer),
		AllowVolumeExpansion: new(true), ReclaimPolicy: new(corev1.PersistentVolumeReclaimDelete),
		AllowedTopologies: []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: zone, Values: []string{"a", "b"}}}}},
	})
	create(t, c, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "any"}})
	create(t, c, deployment("web", 4))
	scaler := create(t, c, &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}, MinReplicas: new(int32(2)), MaxReplicas: 12,
			Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
				Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new(int32(50))},
			}}},
		},
	})
	scaler.Status = autoscalingv2.HorizontalPodAutoscalerStatus{
		CurrentReplicas: 4, DesiredReplicas: 4, Conditions: []autoscalingv2.HorizontalPodAutoscalerCondition{},
		CurrentMetrics: []autoscalingv2.MetricStatus{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricStatus{
			Name: corev1.ResourceCPU, Current: autoscalingv2.MetricValueStatus{AverageUtilization: new(int32(50)), AverageValue: resource.NewMilliQuantity(250, resource.DecimalSI)},
		}}},
	}
	_, err = c.AutoscalingV2().HorizontalPodAutoscalers("default").UpdateStatus(t.Context(), scaler, metav1.UpdateOptions{})
	harness.Must(t, err)
	front := create(t, c, balancer("front"))
	front.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.1"}}
	_, err = c.CoreV1().Services("default").UpdateStatus(t.Context(), front, metav1.UpdateOptions{})
	harness.Must(t, err)
	time.Sleep(10 * time.Minute)
	versions := map[string]string{}
	for _, pod := range podsOf(t, c, "app=web") {
		versions[pod.Name] = pod.ResourceVersion
	}
	if len(versions) != 4 {
		t.Fatalf("the copied cluster has the Pods %v", versions)
	}
	for _, nodes := range joined {
		nodes.Stop()
	}
	harness.Must(t, s.Save(file))
	harness.Must(t, s.Stop())
	return versions
}

// checkLoad checks an autoscaler: with the load that its target had, with twice as much, and with an amount.
func checkLoad(t *testing.T, w *world) {
	replicas := func() int32 {
		d, err := w.client.AppsV1().Deployments("default").Get(t.Context(), "web", metav1.GetOptions{})
		harness.Must(t, err)
		return *d.Spec.Replicas
	}
	if got := replicas(); got != 4 {
		t.Errorf("%d replicas with the load that there was", got)
	}
	for _, test := range []struct {
		load string
		want int32
	}{{"deploy/web=200%", 8}, {"deployment/web=2.5", 10}} {
		given, err := ParseLoad(test.load, "default")
		harness.Must(t, err)
		w.loads.give([]Load{given})
		time.Sleep(10 * time.Minute)
		if got := replicas(); got != test.want {
			t.Errorf("%d replicas instead of %d with %s", got, test.want, test.load)
		}
	}
}

// checkVolumes checks that claims get volumes where their Pods are, that these grow, and go with their claims.
func checkVolumes(t *testing.T, w *world) {
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: appsv1.StatefulSetSpec{
		Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}, Template: deployment("db", 1).Spec.Template,
		VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: new("fast"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		}}},
		PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: appsv1.DeletePersistentVolumeClaimRetentionPolicyType},
	}}
	set.Spec.Template.Spec.Volumes = nil
	create(t, w.client, set)
	time.Sleep(time.Minute)
	found := podsOf(t, w.client, "app=db")
	if len(found) != 1 || found[0].Status.Phase != corev1.PodRunning {
		t.Fatalf("the Pod with a volume: %+v", found)
	}
	claims := w.client.CoreV1().PersistentVolumeClaims("default")
	claim, err := claims.Get(t.Context(), "data-db-0", metav1.GetOptions{})
	harness.Must(t, err)
	volume, err := w.client.CoreV1().PersistentVolumes().Get(t.Context(), claim.Spec.VolumeName, metav1.GetOptions{})
	harness.Must(t, err)
	if at := volume.Spec.NodeAffinity; at == nil || "node-"+at.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0] != found[0].Spec.NodeName {
		t.Errorf("the volume is at %+v, its Pod on %s", at, found[0].Spec.NodeName)
	}
	claim.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("2Gi")
	_, err = claims.Update(t.Context(), claim, metav1.UpdateOptions{})
	harness.Must(t, err)
	time.Sleep(time.Minute)
	claim, err = claims.Get(t.Context(), "data-db-0", metav1.GetOptions{})
	harness.Must(t, err)
	if size := claim.Status.Capacity.Storage(); size.String() != "2Gi" {
		t.Errorf("the claim has %s", size)
	}
	harness.Must(t, w.client.AppsV1().StatefulSets("default").Delete(t.Context(), "db", metav1.DeleteOptions{}))
	time.Sleep(5 * time.Minute)
	if _, err := w.client.CoreV1().PersistentVolumes().Get(t.Context(), volume.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the volume of the deleted claim: %v", err)
	}
}

// checkBalancers checks that a Service gets an address, unless nothing in the cluster gives one to its class.
func checkBalancers(t *testing.T, w *world) {
	create(t, w.client, balancer("second"))
	other := balancer("other")
	other.Spec.LoadBalancerClass = new("example.com/other")
	create(t, w.client, other)
	time.Sleep(time.Minute)
	for name, want := range map[string]int{"second": 1, "other": 0} {
		s, err := w.client.CoreV1().Services("default").Get(t.Context(), name, metav1.GetOptions{})
		harness.Must(t, err)
		if got := s.Status.LoadBalancer.Ingress; len(got) != want {
			t.Errorf("Service %s has the addresses %v", name, got)
		}
	}
}

// checkReferences checks that Pods wait for what they are made of, and start when it is there.
func checkReferences(t *testing.T, w *world) {
	needy := deployment("needy", 1)
	needy.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{
		ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}, Key: "a"},
	}}}
	needy.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "keys", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "keys"}}}}
	create(t, w.client, needy)
	state := func() string {
		time.Sleep(5 * time.Minute)
		pod := podsOf(t, w.client, "app=needy")[0]
		if waiting := pod.Status.ContainerStatuses[0].State.Waiting; waiting != nil {
			return waiting.Reason + " " + waiting.Message
		}
		return string(pod.Status.Phase)
	}
	if is := state(); is != "ContainerCreating " {
		t.Errorf("without its ConfigMap and its Secret, a Pod is %s", is)
	}
	create(t, w.client, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "keys"}})
	if is := state(); is != "CreateContainerConfigError configmap \"settings\" not found" {
		t.Errorf("without its ConfigMap, a Pod is %s", is)
	}
	settings := create(t, w.client, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}})
	if is := state(); is != "CreateContainerConfigError couldn't find key a in ConfigMap default/settings" {
		t.Errorf("without its key, a Pod is %s", is)
	}
	settings.Data = map[string]string{"a": "1"}
	_, err := w.client.CoreV1().ConfigMaps("default").Update(t.Context(), settings, metav1.UpdateOptions{})
	harness.Must(t, err)
	if is := state(); is != "Running" {
		t.Errorf("with all that it needs, a Pod is %s", is)
	}
	events, err := w.client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=FailedMount"})
	harness.Must(t, err)
	if len(events.Items) != 1 || events.Items[0].Message != "MountVolume.SetUp failed for volume \"keys\" : secret \"keys\" not found" {
		t.Errorf("the Events are %+v", events.Items)
	}
	harness.Must(t, w.client.AppsV1().Deployments("default").Delete(t.Context(), "needy", metav1.DeleteOptions{}))
}

// checkNodes deletes a node, adds one, and loses one.
func checkNodes(t *testing.T, w *world) {
	nodes := w.client.CoreV1().Nodes()
	count := func() map[string]int {
		on := map[string]int{}
		for _, pod := range podsOf(t, w.client, "app=web") {
			if pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning {
				on[pod.Spec.NodeName]++
			}
		}
		return on
	}
	harness.Must(t, nodes.Delete(t.Context(), "node-b", metav1.DeleteOptions{}))
	create(t, w.client, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-d"}})
	time.Sleep(10 * time.Minute)
	added, err := nodes.Get(t.Context(), "node-d", metav1.GetOptions{})
	harness.Must(t, err)
	if cpu := added.Status.Allocatable.Cpu(); cpu.String() != "9" || len(added.Spec.Taints) > 0 {
		t.Errorf("the new node has %s CPUs and the taints %v", cpu, added.Spec.Taints)
	}
	if on := count(); on["node-a"]+on["node-d"] != 10 || on["node-d"] == 0 {
		t.Errorf("when a node was deleted and one added, Pods run on %v", on)
	}
	if err := w.lose([]string{"node-c"}); err == nil {
		t.Error("a node is lost that was not ready")
	}
	harness.Must(t, w.lose([]string{"node-a"}))
	time.Sleep(10 * time.Minute)
	if on := count(); on["node-d"] != 10 {
		t.Errorf("when a node was lost, Pods run on %v", on)
	}
}

func balancer(name string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}},
	}}
}

func deployment(name string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Image: "image", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}},
		}}}},
	}}
}

func podsOf(t *testing.T, c kubernetes.Interface, selector string) []corev1.Pod {
	t.Helper()
	list, err := c.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: selector})
	harness.Must(t, err)
	return list.Items
}

// create creates an object, in the namespace default if it has one.
func create[T metav1.Object](t *testing.T, c kubernetes.Interface, object T) T {
	t.Helper()
	var created any
	var err error
	switch o := any(object).(type) {
	case *storagev1.StorageClass:
		created, err = c.StorageV1().StorageClasses().Create(t.Context(), o, metav1.CreateOptions{})
	case *appsv1.Deployment:
		created, err = c.AppsV1().Deployments("default").Create(t.Context(), o, metav1.CreateOptions{})
	case *appsv1.StatefulSet:
		created, err = c.AppsV1().StatefulSets("default").Create(t.Context(), o, metav1.CreateOptions{})
	case *autoscalingv2.HorizontalPodAutoscaler:
		created, err = c.AutoscalingV2().HorizontalPodAutoscalers("default").Create(t.Context(), o, metav1.CreateOptions{})
	case *corev1.ConfigMap:
		created, err = c.CoreV1().ConfigMaps("default").Create(t.Context(), o, metav1.CreateOptions{})
	case *corev1.Secret:
		created, err = c.CoreV1().Secrets("default").Create(t.Context(), o, metav1.CreateOptions{})
	case *corev1.Service:
		created, err = c.CoreV1().Services("default").Create(t.Context(), o, metav1.CreateOptions{})
	case *corev1.Node:
		created, err = c.CoreV1().Nodes().Create(t.Context(), o, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatalf("create %s: %v", object.GetName(), err)
	}
	return created.(T)
}
