package serve

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestPostgresOutage stops Postgres, checks the responses to clients, restarts it, and checks that everything recovers:
// requests, readiness, and a watch, which misses nothing.
func TestPostgresOutage(t *testing.T) {
	t.Parallel()
	postgres := harness.NewPostgresServer(t)
	s := serve(t, []string{"--datastore", postgres.Database(t)})
	c := httpClient(t, s.kubeconfig(), "HTTP/2.0")
	maps := client(t, s.kubeconfig()).CoreV1().ConfigMaps("default")
	create := func(name string) error {
		_, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		return err
	}
	if err := create("before"); err != nil {
		t.Fatal(err)
	}
	watch, err := c.Get(s.url + "/api/v1/namespaces/default/configmaps?watch=true")
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Body.Close()
	events := json.NewDecoder(bufio.NewReader(watch.Body))
	await(t, events, "before")
	// The next event comes from memory: the watch has caught up with the log and no longer reads it.
	if err := create("next"); err != nil {
		t.Fatal(err)
	}
	await(t, events, "next")

	if err := postgres.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, request := range []struct{ method, path, body string }{
		{http.MethodGet, "/api/v1/namespaces/default/configmaps/before", ""},
		{http.MethodGet, "/api/v1/namespaces", ""},
		{http.MethodGet, "/apis/apps/v1/deployments?limit=10", ""},
		{http.MethodPost, "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"lost"}}`},
		{http.MethodDelete, "/api/v1/namespaces/default/configmaps/before", ""},
	} {
		unavailable(t, c, request.method, s.url+request.path, request.body)
	}
	if code, text := fetch(t, insecure, http.MethodGet, s.url+"/readyz", ""); code != http.StatusInternalServerError || !strings.Contains(text, "[-]datastore failed") {
		t.Errorf("/readyz returns %d\n%s", code, text)
	}
	if code, text := fetch(t, insecure, http.MethodGet, s.url+"/livez", ""); code != http.StatusOK {
		t.Errorf("/livez returns %d\n%s", code, text)
	}
	if found := storeMetrics(t, client(t, s.kubeconfig())); found["unreachable_seconds"] <= 0 || found["failures_total"] == 0 {
		t.Errorf("the metrics are %v", found)
	}
	kubectl := exec.Command(sqube.KubectlBinary(t), "get", "--raw", "/api/v1/namespaces/default/configmaps/before")
	kubectl.Env = sqube.KubectlEnv(t, s.kubeconfig())
	out, err := kubectl.CombinedOutput()
	if err == nil || !strings.HasPrefix(string(out), "Error from server (ServiceUnavailable): the datastore is unavailable, try again") {
		t.Errorf("kubectl shows %v\n%s", err, out)
	}
	if err := postgres.Start(); err != nil {
		t.Fatal(err)
	}
	s.waitReady(t)
	if err := create("after"); err != nil {
		t.Errorf("once Postgres is back: %v", err)
	}
	await(t, events, "after")
	eventually(t, "the metrics show that Postgres responds", func() error {
		if found := storeMetrics(t, client(t, s.kubeconfig())); found["unreachable_seconds"] != 0 || found["tail_lag_seconds"] != 0 {
			return fmt.Errorf("the metrics are %v", found)
		}
		return nil
	})
	s.terminate(t)
}

// await reads events until the creation of the object. An event that ends the watch fails the test.
func await(t *testing.T, events *json.Decoder, name string) {
	t.Helper()
	for {
		var event struct {
			Type   string
			Object struct {
				metav1.PartialObjectMetadata
				Message string // of a Status
			}
		}
		if err := events.Decode(&event); err != nil {
			t.Fatalf("the watch ends before the event of %s: %v", name, err)
		}
		switch {
		case event.Type == "ERROR" || event.Type == "DELETED":
			t.Fatalf("the watch sends %s of %s before the event of %s: %s", event.Type, event.Object.Name, name, event.Object.Message)
		case event.Object.Name == "lost":
			t.Fatal("a failed write took effect")
		case event.Object.Name == name:
			return
		}
	}
}

// unavailable sends a request and expects the Status of a temporarily unavailable server.
func unavailable(t *testing.T, c *http.Client, method, url, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	began := time.Now()
	response, err := c.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	var status metav1.Status
	if err := errors.Join(json.Unmarshal(text, &status), isUnavailable(response, &status)); err != nil {
		t.Errorf("%s %s after %s: %v\n%s", method, url, time.Since(began), err, text)
	}
}

func isUnavailable(response *http.Response, status *metav1.Status) error {
	reasons := map[int]metav1.StatusReason{http.StatusServiceUnavailable: metav1.StatusReasonServiceUnavailable, http.StatusGatewayTimeout: metav1.StatusReasonTimeout}
	reason, known := reasons[response.StatusCode]
	switch {
	case !known || status.Kind != "Status" || status.Code != int32(response.StatusCode) || status.Reason != reason:
		return fmt.Errorf("got %s, want a Status of 503 or 504", response.Status)
	case response.Header.Get("Retry-After") == "" || status.Details == nil || status.Details.RetryAfterSeconds == 0:
		return errors.New("want a Retry-After")
	case strings.Contains(status.Message, "\n"):
		return errors.New("want a one-line message")
	}
	return nil
}
