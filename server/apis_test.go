package server

import (
	"testing"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/sqube/sqube/server/informer"
	"github.com/sqube/sqube/server/loopback"
	"github.com/sqube/sqube/server/pki"
	"github.com/sqube/sqube/test/harness"
)

// TestConnectionsToPodsHaveATimeLimit has no egress, so that nothing but the default dialer limits how long a connection may take.
func TestConnectionsToPodsHaveATimeLimit(t *testing.T) {
	keys, err := pki.Ensure(t.Context(), t.TempDir(), pki.Options{})
	harness.Must(t, err)
	transport := loopback.New(t.Context())
	defer func() {
		if err := transport.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	client, err := kubernetes.NewForConfig(transport.Config())
	harness.Must(t, err)
	c, err := newWebhookClient(&base{
		options: NewOptions(), pki: keys, loopback: transport, informers: informer.NewFactory(informers.NewSharedInformerFactory(client, 0), nil, nil),
	})
	harness.Must(t, err)
	if c.transport.DialContext == nil {
		t.Error("the transport has no dialer")
	}
}
