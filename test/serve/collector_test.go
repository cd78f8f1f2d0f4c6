package serve

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// quietPercent is more than GOGC of a quiet server, and less than that of a busy one that holds next to nothing.
const quietPercent = 160

// TestCollectorUnderLoad sees the heap of a busy server grow further between collections, and less far
// again once it is quiet. An operator's GOGC stands.
func TestCollectorUnderLoad(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	c := client(t, s.kubeconfig())
	load := func() {
		t.Helper()
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "large"}, Data: map[string]string{"text": strings.Repeat("x", 900<<10)}}
		if _, err := c.CoreV1().ConfigMaps("default").Create(t.Context(), object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
			t.Fatal(err)
		}
	}
	load() // waits for admission plugins
	eventually(t, "a busy server collects less", func() error {
		load()
		if percent := collectorPercent(t, c); percent <= quietPercent {
			return fmt.Errorf("GOGC is %d", percent)
		}
		return nil
	})
	// To ask costs memory too, so this is not asked often.
	for deadline := time.Now().Add(patience); collectorPercent(t, c) > quietPercent; {
		if time.Now().After(deadline) {
			t.Fatal("a quiet server does not collect as usual again")
		}
		select {
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-time.After(2 * time.Second):
		}
	}

	s = serve(t, nil, env("GOGC=150"))
	c = client(t, s.kubeconfig())
	for range 20 {
		load()
	}
	if percent := collectorPercent(t, c); percent != 150 {
		t.Errorf("GOGC is %d, not 150 as the environment has it", percent)
	}
}

// percentMetric is the line of /metrics on GOGC.
var percentMetric = regexp.MustCompile(`(?m)^go_gc_gogc_percent (\d+)$`)

func collectorPercent(t *testing.T, c kubernetes.Interface) (percent int) {
	t.Helper()
	text, err := c.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := percentMetric.FindSubmatch(text)
	if found == nil {
		t.Fatal("no go_gc_gogc_percent in the metrics")
	}
	if _, err := fmt.Sscan(string(found[1]), &percent); err != nil {
		t.Fatal(err)
	}
	return percent
}
