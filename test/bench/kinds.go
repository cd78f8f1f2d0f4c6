package main

import (
	"encoding/json"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// namespace is the namespace of everything that the phases create.
const namespace = "bench"

// kind is a kind of objects that phases write.
type kind struct {
	collection string
	prefix     string                                 // of the objects' names, which end with their numbers
	body       func(name string, revision int) []byte // of a write; the revision makes those of one name differ
}

// name returns the name of the ith object.
func (k kind) name(i int) string { return fmt.Sprintf("%s-%06d", k.prefix, i) }

// path returns the path of the ith object.
func (k kind) path(i int) string { return k.collection + "/" + k.name(i) }

// collection returns the path of the objects of an API group's version and resource in the namespace.
func collection(version, resource string) string {
	if !strings.Contains(version, "/") {
		return "/api/" + version + "/namespaces/" + namespace + "/" + resource
	}
	return "/apis/" + version + "/namespaces/" + namespace + "/" + resource
}

// configMaps are ConfigMaps of 1 KB.
func configMaps(prefix string) kind { return labelledConfigMaps(prefix, "") }

// labelledConfigMaps are ConfigMaps of 1 KB with the JSON of their labels, or without any for "".
func labelledConfigMaps(prefix, labels string) kind {
	const size = 1024
	const tail = `"}}`
	if labels != "" {
		labels = `,"labels":` + labels
	}
	return kind{collection("v1", "configmaps"), prefix, func(name string, revision int) []byte {
		head := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q%s},"data":{"revision":"%07d","text":"`, name, labels, revision)
		return []byte(head + strings.Repeat("x", size-len(head)-len(tail)) + tail)
	}}
}

// leases are like those of kubelets.
var leases = kind{collection("coordination.k8s.io/v1", "leases"), "node", func(name string, revision int) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":%q},`+
		`"spec":{"holderIdentity":%[1]q,"leaseDurationSeconds":40,"renewTime":"2026-01-01T00:%02d:%02d.%06dZ"}}`, name, revision/60%60, revision%60, revision)
}}

// events are what a kubelet reports about a pod.
var events = kind{collection("v1", "events"), "shop-frontend", func(name string, revision int) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Event","metadata":{"name":%q},`+
		`"involvedObject":{"kind":"Pod","namespace":"`+namespace+`","name":%[1]q,"uid":"5e9a4d1c-35a1-4a3b-9d2f-0c7f2b7d9a11","apiVersion":"v1","resourceVersion":"482913","fieldPath":"spec.containers{server}"},`+
		`"reason":"BackOff","message":"Back-off restarting failed container server in pod %[1]s_`+namespace+`(5e9a4d1c-35a1-4a3b-9d2f-0c7f2b7d9a11)",`+
		`"source":{"component":"kubelet","host":"node-0001"},"firstTimestamp":"2026-01-01T00:00:00Z","lastTimestamp":"2026-01-01T00:00:00Z",`+
		`"count":%d,"type":"Warning","reportingComponent":"kubelet","reportingInstance":"node-0001"}`, name, revision+1)
}}

// deploymentImage is the image of a Deployment's containers at a revision.
func deploymentImage(revision int) string {
	return fmt.Sprintf("registry.example.com/shop/frontend:v2.14.%d", revision)
}

// deployments are those of the application whose pods are listed.
func deployments(prefix string) (kind, error) {
	const name, image = "deployment-name", "deployment-image"
	pod := podTemplate()
	pod.Spec.Containers[0].Image = image
	replicas := int32(3)
	raw, err := json.Marshal(&appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: pod.Labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: pod.Labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec},
		},
	})
	return kind{collection("apps/v1", "deployments"), prefix, func(of string, revision int) []byte {
		return []byte(strings.NewReplacer(name, of, image, deploymentImage(revision)).Replace(string(raw)))
	}}, err
}

// selectedLabel is the label that the phase of label selectors selects.
const selectedLabel = "bench=selected"

var podsPath = collection("v1", "pods")

// podImage is the image of their containers.
const podImage = "registry.example.com/shop/frontend:v2.14.3"

// podTemplate is a pod like those of a real application's Deployment. It takes 4.8 KB in a server with its defaults and managed
// fields. It has no owner: the garbage collector would delete it if its owner did not exist.
func podTemplate() *corev1.Pod {
	probe := func(path string) *corev1.Probe {
		return &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString("http")}},
			PeriodSeconds: 10,
		}
	}
	var env []corev1.EnvVar
	for _, name := range []string{"DATABASE_HOST", "DATABASE_NAME", "CACHE_HOST", "LOG_LEVEL", "REGION", "FEATURES"} {
		env = append(env, corev1.EnvVar{Name: name, Value: strings.ToLower(name) + ".production.example.com"})
	}
	env = append(env, corev1.EnvVar{Name: "POD_IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}})
	automount := false
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{"app.kubernetes.io/name": "shop", "app.kubernetes.io/component": "frontend", "pod-template-hash": "7d4b9c6f58"},
			Annotations: map[string]string{
				"prometheus.io/scrape": "true", "prometheus.io/port": "9090",
				"checksum/config": strings.Repeat("4f5a", 16),
			},
		},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: &automount,
			Containers: []corev1.Container{{
				Name:    "server",
				Image:   podImage,
				Command: []string{"/bin/server", "--config=/etc/shop/config.yaml"},
				Ports:   []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}, {Name: "metrics", ContainerPort: 9090}},
				Env:     env,
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("128Mi")},
					Limits:   corev1.ResourceList{"memory": resource.MustParse("256Mi")},
				},
				VolumeMounts:   []corev1.VolumeMount{{Name: "config", MountPath: "/etc/shop"}, {Name: "scratch", MountPath: "/tmp"}},
				LivenessProbe:  probe("/livez"),
				ReadinessProbe: probe("/readyz"),
			}},
			Volumes: []corev1.Volume{
				{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "shop-frontend"}}}},
				{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			},
		},
	}
}

// podBodies returns a function that returns the body of the ith pod. The first pods have the label that the phase of label
// selectors selects.
func podBodies(n sizes) (func(i int) []byte, error) {
	const name, label, node = "pod-name", "pod-label", "pod-node"
	pod := podTemplate()
	pod.Name = name
	pod.Labels["bench"] = label
	pod.Spec.NodeName = node
	raw, err := json.Marshal(pod)
	return func(i int) []byte {
		selected := "ordinary"
		if i < n.selected() {
			selected = "selected"
		}
		return []byte(strings.NewReplacer(name, podName(i), label, selected, node, nodeName(n.nodeOf(i))).Replace(string(raw)))
	}, err
}

func podName(i int) string  { return fmt.Sprintf("shop-frontend-7d4b9c6f58-%05d", i) }
func nodeName(i int) string { return fmt.Sprintf("node-%04d", i) }
