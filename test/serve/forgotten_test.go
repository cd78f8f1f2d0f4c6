package serve

import (
	"io"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/harness"
)

// TestListOutlivesItsRevision pauses in the middle of reading a list until its revision is compacted: the list breaks off, and
// does not end as if it were complete.
func TestListOutlivesItsRevision(t *testing.T) {
	t.Parallel()
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		s := serve(t, []string{"--datastore", engine.Datastore, "--retention", "1s", "--compact-interval", "100ms", "--history=0"})
		createLarge(t, s)
		c := client(t, s.Kubeconfig)
		maps := c.CoreV1().ConfigMaps("default")
		clients := map[string]*http.Client{"HTTP/2.0": httpClient(t, s.Kubeconfig, "HTTP/2.0"), "HTTP/1.1": httpClient(t, s.Kubeconfig, "HTTP/1.1")}
		lists := map[string]*http.Response{}
		for protocol, client := range clients {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/api/v1/namespaces/default/configmaps", nil)
			harness.Must(t, err)
			request.Header.Set("Accept-Encoding", "identity") // compressed, all of it would be sent at once
			response, err := client.Do(request)
			harness.Must(t, err)
			defer response.Body.Close()
			if _, err := io.ReadFull(response.Body, make([]byte, 1)); err != nil || response.StatusCode != http.StatusOK {
				t.Fatalf("%s: %s, %v", protocol, response.Status, err)
			}
			lists[protocol] = response
		}
		// The last change is after the lists.
		changed, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "changes"}}, metav1.CreateOptions{})
		if err == nil {
			changed.Data = map[string]string{"a": "b"}
			changed, err = maps.Update(t.Context(), changed, metav1.UpdateOptions{})
		}
		harness.Must(t, err)
		awaitForgotten(t, s, changed.ResourceVersion)
		for protocol, response := range lists {
			if n, err := io.Copy(io.Discard, response.Body); err == nil {
				t.Errorf("%s: the list ends after %d bytes as if it were complete", protocol, n)
			}
		}
	})
}
