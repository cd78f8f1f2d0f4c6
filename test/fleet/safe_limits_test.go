package fleet

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestLimits sets limits of a cluster that is awake, and goes beyond them.
func TestLimits(t *testing.T) {
	h := startHosting(t)
	h.create(t, "a", `{}`)
	h.create(t, "b", `{}`)
	admin := h.admin(t, "a")
	kube := newKube(t, admin)
	maps := kube.CoreV1().ConfigMaps("default")
	put := func(name string, size int) error {
		_, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"data": strings.Repeat("x", size)}}, metav1.CreateOptions{})
		return err
	}
	harness.Must(t, put("first", 1))

	h.limit(t, "a", `{"objects": 1}`)
	harness.Eventually(t, "a create beyond spec.limits.objects is refused", func() bool { return refusedBy(put("second", 1), "spec.limits.objects") })
	harness.Must(t, maps.Delete(t.Context(), "first", metav1.DeleteOptions{}))

	_, err := kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "large"}}, metav1.CreateOptions{})
	if !refusedBy(err, "spec.limits.objects") {
		t.Errorf("a namespace: %v", err)
	}
	h.limit(t, "a", `{"storage": "8Mi"}`)
	harness.Eventually(t, "the limit of objects has ended", func() bool {
		_, err := kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "large"}}, metav1.CreateOptions{})
		return err == nil
	})
	maps = kube.CoreV1().ConfigMaps("large")
	i := 0
	harness.Eventually(t, "a create beyond spec.limits.storage is refused", func() bool {
		i++
		return refusedBy(put(fmt.Sprint("large-", i), 300_000), "spec.limits.storage")
	})
	one, err := maps.Get(t.Context(), "large-1", metav1.GetOptions{})
	harness.Must(t, err)
	one.Data["more"] = "x"
	if _, err := maps.Update(t.Context(), one, metav1.UpdateOptions{}); !refusedBy(err, "spec.limits.storage") {
		t.Errorf("an update: %v", err)
	}
	harness.Must(t, maps.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))

	h.limit(t, "a", `{"watches": 2, "requestsPerSecond": 3}`)
	who := with(t, "an administrator", admin)
	harness.Eventually(t, "requests beyond spec.limits.requestsPerSecond are refused", func() bool { return flood(t, who, h.at("a")+"/version", "spec.limits.requestsPerSecond") })
	if code, text, _ := with(t, "", h.admin(t, "b")).request(t, http.MethodGet, h.at("b")+"/version", nil); code != http.StatusOK {
		t.Errorf("the other cluster answers %d %s", code, text)
	}
	metrics := sqube.Metrics(t, h.kube)
	for _, want := range []string{`sqube_clusters{state="awake"} 2`, `sqube_cluster_worst{cluster="a",namespace="team",of="requests"}`, `sqube_cluster_requests_refused_total{reason="limit"}`, "sqube_cluster_wake_duration_seconds_count 2"} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the host's metrics do not have %s", want)
		}
	}
	h.limit(t, "a", `{"watches": 2}`)
	watched := watches(t, admin, 3)
	if len(watched) != 1 || !apierrors.IsTooManyRequests(watched[0]) || !strings.Contains(watched[0].Error(), "spec.limits.watches") {
		t.Errorf("of three watches, some are refused by %v", watched)
	}
}

// limit sets the limits of a cluster.
func (h *hosting) limit(t *testing.T, name, limits string) {
	t.Helper()
	patch := fmt.Sprintf(`[{"op": "add", "path": "/spec/limits", "value": %s}]`, limits)
	_, err := h.kube.Discovery().RESTClient().Patch(types.JSONPatchType).AbsPath(clusters, name).Body([]byte(patch)).DoRaw(t.Context())
	harness.Must(t, err)
}

func refusedBy(err error, setting string) bool {
	status, ok := err.(apierrors.APIStatus)
	return ok && status.Status().Code == http.StatusInsufficientStorage && strings.Contains(status.Status().Message, setting)
}

// flood sends requests at once, and reports whether some were refused because of a limit.
func flood(t *testing.T, who *somebody, url, setting string) (refused bool) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			code, text, header := who.request(t, http.MethodGet, url, nil)
			mu.Lock()
			defer mu.Unlock()
			refused = refused || code == http.StatusTooManyRequests && strings.Contains(text, setting) && header.Get("Retry-After") != ""
		})
	}
	wg.Wait()
	return refused
}

// watches opens watches, which last until the end of the test, and returns the errors of those that can't be opened.
func watches(t *testing.T, config *rest.Config, number int) (errs []error) {
	t.Helper()
	config = rest.CopyConfig(config)
	kube := newKube(t, config)
	for range number {
		// The client would try again later.
		stream, err := kube.CoreV1().RESTClient().Get().AbsPath("/api/v1/pods").Param("watch", "true").MaxRetries(0).Stream(t.Context())
		if err != nil {
			errs = append(errs, err)
			continue
		}
		t.Cleanup(func() { _ = stream.Close() })
	}
	return errs
}

// TestHostNames reaches clusters by host names.
func TestHostNames(t *testing.T) {
	h := startHosting(t, "--cluster-domain", "clusters.example")
	h.create(t, "a", `{}`)
	config := h.admin(t, "a")
	config.Host = h.URL
	config.ServerName = "a.team.clusters.example"
	who := newKube(t, config) // verifies the certificate
	get := func(host string) (string, error) {
		r := who.Discovery().RESTClient().Get().AbsPath("/api/v1/namespaces/kube-system")
		client := *who.Discovery().RESTClient().(*rest.RESTClient).Client
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.URL().String(), nil)
		harness.Must(t, err)
		request.Host = host
		code, text := harness.Do(t, &client, request)
		return text, map[bool]error{false: fmt.Errorf("%d %s", code, text)}[code == http.StatusOK]
	}
	inside, err := newKube(t, h.admin(t, "a")).CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{})
	harness.Must(t, err)
	for _, host := range []string{"a.team.clusters.example", "A.Team.clusters.example:6443", "a.team.clusters.example."} {
		if text, err := get(host); err != nil || !strings.Contains(text, string(inside.UID)) {
			t.Errorf("%s: %v, not the namespace of the cluster", host, err)
		}
	}
	for _, host := range []string{"missing.team.clusters.example", "team.clusters.example", "a.other.clusters.example", ".clusters.example"} {
		if text, err := get(host); err == nil {
			t.Errorf("%s: %s", host, text)
		}
	}
}
