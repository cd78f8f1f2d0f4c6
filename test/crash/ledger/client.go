package ledger

import (
	"testing"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/test/harness"
)

// NewClient returns a client for writers without a client-side rate limit.
func NewClient(t testing.TB, config *rest.Config) dynamic.Interface {
	t.Helper()
	config = rest.CopyConfig(config)
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	harness.Must(t, err)
	return client
}
