package serve

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// quietPercent is above the GOGC of an idle server, and below that of a busy server with an almost empty heap.
const quietPercent = 160

// TestCollectorUnderLoad checks that the heap of a busy server grows more between collections, and less again once it is idle.
// An operator's GOGC is kept.
func TestCollectorUnderLoad(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	c := client(t, s.Kubeconfig)
	load := func(int) error {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "large"}, Data: map[string]string{"text": strings.Repeat("x", 900<<10)}}
		_, err := c.CoreV1().ConfigMaps("default").Create(t.Context(), object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	harness.Must(t, load(0)) // waits for the admission plugins
	harness.Retry(t, "a busy server collects less", func() error {
		each(t, 16, load)
		if percent := collectorPercent(t, c); percent <= quietPercent {
			return fmt.Errorf("GOGC is %d", percent)
		}
		return nil
	})
	// Reading the metric costs memory too, so it is rarely read.
	for deadline := time.Now().Add(harness.Patience); collectorPercent(t, c) > quietPercent; {
		if time.Now().After(deadline) {
			t.Fatal("an idle server does not return to the usual GOGC")
		}
		select {
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-time.After(2 * time.Second):
		}
	}

	s = serve(t, nil, env("GOGC=150"))
	c = client(t, s.Kubeconfig)
	each(t, 20, load)
	if percent := collectorPercent(t, c); percent != 150 {
		t.Errorf("GOGC is %d, not 150 as in the environment", percent)
	}
}

// TestLowMemoryLimit checks that the log says once that the memory limit is too low, and what to do, and nothing if it is not.
func TestLowMemoryLimit(t *testing.T) {
	t.Parallel()
	const warning = "garbage collection takes"
	low, enough := serve(t, nil, env("GOMEMLIMIT=16MiB")), serve(t, nil, env("GOMEMLIMIT=1GiB"))
	for _, s := range []*sqube.Server{low, enough} {
		c := client(t, s.Kubeconfig)
		harness.Retry(t, "the server collects garbage for a while", func() error {
			if _, err := c.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
				return err
			}
			if !strings.Contains(low.Log(t), warning) {
				return errors.New("there is no warning")
			}
			return nil
		})
		s.Stop(t)
	}
	if text := low.Log(t); strings.Count(text, warning) != 1 || !strings.Contains(text, "memory limit of 16 MiB") || !strings.Contains(text, "raise GOMEMLIMIT to") {
		t.Errorf("the log:\n%s", text)
	}
	if text := enough.Log(t); strings.Contains(text, warning) {
		t.Errorf("with enough memory:\n%s", text)
	}
}

// percentMetric is the line of /metrics with GOGC.
var percentMetric = regexp.MustCompile(`(?m)^go_gc_gogc_percent (\d+)$`)

func collectorPercent(t *testing.T, c kubernetes.Interface) (percent int) {
	t.Helper()
	found := percentMetric.FindStringSubmatch(sqube.Metrics(t, c))
	if found == nil {
		t.Fatal("no go_gc_gogc_percent in the metrics")
	}
	if _, err := fmt.Sscan(found[1], &percent); err != nil {
		t.Fatal(err)
	}
	return percent
}
