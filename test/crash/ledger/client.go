package ledger

import (
	"testing"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// NewClient returns a client for writers without a client-side rate limit.
func NewClient(t testing.TB, config *rest.Config) dynamic.Interface {
	t.Helper()
	config = rest.CopyConfig(config)
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
