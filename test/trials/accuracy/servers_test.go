package accuracy

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/harness"
)

// servers are what a cluster asks beside its API: a webhook, and a server of metrics as metrics-server is one.
type servers struct {
	load      atomic.Int64 // that the Pods of the scenario load have in all, in thousandths of a CPU
	addresses *strings.Replacer
}

// metricsService makes the server of metrics a part of the cluster's API.
const metricsService = `
apiVersion: v1
kind: Service
metadata: {name: metrics-server, namespace: kube-system}
spec: {type: ExternalName, externalName: localhost, ports: [{port: {{metrics}}}]}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.metrics.k8s.io}
spec:
  group: metrics.k8s.io
  version: v1beta1
  insecureSkipTLSVerify: true
  groupPriorityMinimum: 100
  versionPriority: 100
  service: {name: metrics-server, namespace: kube-system, port: {{metrics}}}
`

// start starts the servers, and waits until the API has that of metrics.
func (s *servers) start(t *testing.T, c *cluster) {
	t.Helper()
	s.load.Store(100)
	webhook := httptest.NewTLSServer(http.HandlerFunc(refuse))
	t.Cleanup(webhook.Close)
	metrics := httptest.NewTLSServer(c.metrics())
	t.Cleanup(metrics.Close)
	_, port, err := net.SplitHostPort(metrics.Listener.Addr().String())
	harness.Must(t, err)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: webhook.Certificate().Raw})
	s.addresses = strings.NewReplacer("{{webhook}}", webhook.Listener.Addr().String(), "{{metrics}}", port,
		"{{authority}}", base64.StdEncoding.EncodeToString(authority))
	c.must(t, &scenario{name: "metrics"}, c.filled(metricsService), "apply", "--server-side", "-f", "-")
	c.must(t, &scenario{name: "metrics"}, "", "wait", "--for=condition=Available", "apiservice", "v1beta1.metrics.k8s.io", "--timeout=60s")
}

// filled returns a text with the addresses of the servers.
func (c *cluster) filled(text string) string { return c.servers.addresses.Replace(text) }

// refuse is a webhook that refuses Pods with a forbidden image.
func refuse(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	var pod corev1.Pod
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(w, fmt.Sprint(err), http.StatusBadRequest)
		return
	}
	if err := json.Unmarshal(review.Request.Object.Raw, &pod); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	for i := range pod.Spec.Containers {
		if image := pod.Spec.Containers[i].Image; strings.HasPrefix(image, "forbidden:") {
			review.Response.Allowed, review.Response.Result = false, &metav1.Status{Message: "the image " + image + " is forbidden"}
		}
	}
	answer(w, review)
}

func answer(w http.ResponseWriter, object any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(object) // a client that has gone
}

// metrics is the API of metrics. The Pods of a namespace that are ready share the load, whoever asks.
func (c *cluster) metrics() http.Handler {
	const root = "/apis/metrics.k8s.io/v1beta1"
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+root, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "metrics.k8s.io/v1beta1",
			APIResources: []metav1.APIResource{{Name: "pods", Kind: "PodMetrics", Namespaced: true, Verbs: []string{"get", "list"}}}})
	})
	mux.HandleFunc("GET "+root+"/pods", func(w http.ResponseWriter, _ *http.Request) { answer(w, podMetrics(nil)) })
	mux.HandleFunc("GET "+root+"/namespaces/{namespace}/pods", func(w http.ResponseWriter, r *http.Request) {
		pods, err := c.CoreV1().Pods(r.PathValue("namespace")).List(r.Context(), metav1.ListOptions{LabelSelector: r.FormValue("labelSelector")})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		var ready []any
		for i := range pods.Items {
			if pod := &pods.Items[i]; pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
				ready = append(ready, map[string]any{
					"metadata": map[string]any{"name": pod.Name, "namespace": pod.Namespace, "labels": pod.Labels}, "timestamp": time.Now().UTC().Format(time.RFC3339),
					"window": "15s",
				})
			}
		}
		for _, pod := range ready {
			cpu := fmt.Sprintf("%dm", c.servers.load.Load()/int64(len(ready)))
			pod.(map[string]any)["containers"] = []any{map[string]any{"name": "main", "usage": map[string]any{"cpu": cpu, "memory": "1Mi"}}}
		}
		answer(w, podMetrics(ready))
	})
	return mux
}

func podMetrics(items []any) map[string]any {
	return map[string]any{"apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetricsList", "metadata": map[string]any{}, "items": items}
}
