package flood

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

const (
	pods       = "/api/v1/namespaces/default/pods"
	configMaps = "/api/v1/namespaces/default/configmaps"
)

// TestBodies sends requests that are small, but become large: with many empty objects, in each media type and for each verb. Without
// bounds, one of them takes more than a GiB.
func TestBodies(t *testing.T) {
	t.Parallel()
	s := startTargetWith(t, sqube.Options{Datastore: harness.SQLite(t), Env: []string{"GOMEMLIMIT=300MiB"}})
	c := kubernetes.NewForConfigOrDie(s.config)
	if _, err := c.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "patched"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const empty = 700000
	large := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, Spec: corev1.PodSpec{Containers: make([]corev1.Container, empty)}}
	pod := func(format string, n int) string {
		return fmt.Sprintf(format, strings.Repeat("{},", n)+"{}")
	}
	const (
		asJSON = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[%s]}}`
		asYAML = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {tolerations: [%s]}\n"
		owners = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"patched","ownerReferences":[%s]}}`
	)
	attacks := []struct {
		method, path, mediaType, body string
		status                        int
	}{
		{"POST", pods, "application/json", pod(asJSON, empty), 413},
		{"POST", pods, "application/yaml", pod(asYAML, empty), 413},
		{"POST", pods, "application/yaml", "a: &a " + strings.Repeat("x", 100000) + "\nb: [" + strings.Repeat("*a,", 10000) + "]", 413},
		{"POST", pods, "application/vnd.kubernetes.protobuf", encode(t, protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), large), 413},
		{"POST", configMaps, "application/cbor", encode(t, cbor.NewSerializer(scheme.Scheme, scheme.Scheme), large), 413},
		{"PUT", configMaps + "/patched", "application/json", pod(owners, empty), 413},
		{"PATCH", configMaps + "/patched", "application/merge-patch+json", pod(owners, empty), 413},
		{"PATCH", configMaps + "/patched", "application/strategic-merge-patch+json", pod(owners, empty), 413},
		{"PATCH", configMaps + "/patched", "application/json-patch+json", pod(`[{"op":"add","path":"/metadata/ownerReferences","value":[%s]}]`, empty), 413},
		{"PATCH", configMaps + "/patched?fieldManager=m", "application/apply-patch+yaml", pod(owners, empty), 413},
		{"DELETE", configMaps + "/none", "application/json", pod(`{"dryRun":[%s]}`, empty), 413},
		{"POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", "application/json", pod(`{"spec":{"groups":[%s]}}`, empty), 413},
		// These may be decoded, one after another.
		{"POST", pods, "application/json", pod(asJSON, 60000), 422},
		{"POST", pods, "application/yaml", pod(asYAML, 60000), 422},
	}
	s.under(t, func(ctx context.Context) {
		var running sync.WaitGroup
		for _, a := range attacks {
			for range 2 {
				running.Go(func() {
					status, text, err := s.send(ctx, a.method, a.path, a.mediaType, a.body)
					if err != nil || status != a.status {
						t.Errorf("%s %s in %s of %d bytes: %d, want %d: %.300s %v", a.method, a.path, a.mediaType, len(a.body), status, a.status, text, err)
					}
				})
			}
		}
		running.Wait()
	})
	t.Run("a ConfigMap with 50,000 keys", func(t *testing.T) {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "many-keys"}, Data: map[string]string{}}
		for i := range 50000 {
			m.Data[fmt.Sprint("key-", i)] = "value"
		}
		created, err := c.CoreV1().ConfigMaps("default").Create(t.Context(), m, metav1.CreateOptions{})
		harness.Must(t, err)
		created.Data["key-1"] = "changed"
		if _, err := c.CoreV1().ConfigMaps("default").Update(t.Context(), created, metav1.UpdateOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// send sends a request as the administrator, and returns the status and the text of the response.
func (s *target) send(ctx context.Context, method, path, mediaType, body string) (int, string, error) {
	transport := &http.Transport{TLSClientConfig: s.administrator.Clone(), ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, method, s.URL+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Content-Type", mediaType)
	response, err := (&http.Client{Transport: transport, Timeout: answerTimeout}).Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

func encode(t *testing.T, encoder runtime.Encoder, obj runtime.Object) string {
	t.Helper()
	data, err := runtime.Encode(encoder, obj)
	harness.Must(t, err)
	return string(data)
}
