package main

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

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
