package flood

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/sqube/sqube/test/harness"
)

// TestQuickCancels uses a well-behaved client that cancels a thousand requests and a thousand watches over one connection,
// which must stay open.
func TestQuickCancels(t *testing.T) {
	t.Parallel()
	s := startTarget(t)
	var connections atomic.Int32
	var http2 http.Protocols
	http2.SetHTTP2(true)
	client := &http.Client{Timeout: answerTimeout, Transport: &http.Transport{
		TLSClientConfig: s.administrator.Clone(),
		Protocols:       &http2,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			connections.Add(1)
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}}
	defer client.CloseIdleConnections()
	get := func(ctx context.Context, path string) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err == nil {
			response.Body.Close() // ends a watch
		}
		return err
	}
	harness.Must(t, get(t.Context(), "/readyz"))
	const times = 1000
	for range times {
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error)
		go func() { result <- get(ctx, "/api/v1/configmaps") }()
		cancel()
		if err := <-result; err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		harness.Must(t, get(t.Context(), "/api/v1/configmaps?watch=true"))
	}
	harness.Must(t, get(t.Context(), "/readyz"))
	if n := connections.Load(); n != 1 {
		t.Errorf("the client needed %d connections", n)
	}
}
