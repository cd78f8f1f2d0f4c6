package sqube

import (
	"regexp"
	"strconv"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/sqube/sqube/test/harness"
)

// storeMetric is a line of /metrics about the store.
var storeMetric = regexp.MustCompile(`(?m)^sqube_store_(\w+) (\S+)$`)

// StoreMetrics returns a server's metrics of the store, without the prefix of their names.
func StoreMetrics(t testing.TB, c kubernetes.Interface) map[string]float64 {
	t.Helper()
	text, err := c.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	harness.Must(t, err)
	found := map[string]float64{}
	for _, line := range storeMetric.FindAllStringSubmatch(string(text), -1) {
		found[line[1]], err = strconv.ParseFloat(line[2], 64)
		harness.Must(t, err)
	}
	return found
}
