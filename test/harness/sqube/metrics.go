package sqube

import (
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/sqube/sqube/test/harness"
)

// Metrics returns the text of a server's metrics.
func Metrics(t testing.TB, c kubernetes.Interface) string {
	t.Helper()
	text, err := c.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	harness.Must(t, err)
	return string(text)
}

// StoreMetrics returns a server's metrics of the store, without the prefix of their names.
func StoreMetrics(t testing.TB, c kubernetes.Interface) map[string]float64 {
	t.Helper()
	found := map[string]float64{}
	for line := range strings.Lines(Metrics(t, c)) {
		line, ours := strings.CutPrefix(line, "sqube_store_")
		if name, value, plain := strings.Cut(strings.TrimSpace(line), " "); ours && plain && !strings.Contains(name, "{") {
			number, err := strconv.ParseFloat(value, 64)
			harness.Must(t, err)
			found[name] = number
		}
	}
	return found
}
