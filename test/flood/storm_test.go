package flood

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/sqube/sqube/test/harness"
)

// stormClients is how many clients connect at once, like kubelets after an outage.
const stormClients = 5000

// TestStorm has thousands of clients connect at once, beside connections that say nothing: more than the server accepts together. Each
// client gets the answer to its first request. Some end in the middle of another one, which is no error of the server.
func TestStorm(t *testing.T) {
	var limit syscall.Rlimit
	harness.Must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	clients := int(min(stormClients, (limit.Cur-spareFiles)/3))
	s := startTarget(t)
	s.under(t, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, answerTimeout)
		defer cancel()
		for range clients / 2 {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.address)
			if err != nil {
				t.Errorf("a connection that says nothing: %v", err)
				break
			}
			context.AfterFunc(ctx, func() { conn.Close() })
		}
		var lost atomic.Int32
		var running sync.WaitGroup
		begin := make(chan struct{})
		for i := range clients {
			running.Go(func() {
				<-begin
				dial := s.dial1
				if i%2 == 0 {
					dial = s.dial2
				}
				conn, err := dial(ctx, s.administrator.Clone())
				switch {
				case err == nil && i%1000 == 1:
					_, _ = io.WriteString(conn, "POST "+configMaps+" HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
					conn.Close()
				case err != nil && lost.Add(1) <= 5:
					t.Errorf("client %d: %v", i, err)
				}
			})
		}
		close(begin)
		running.Wait()
		if n := lost.Load(); n > 0 {
			t.Errorf("%d of %d clients got no answer to their first request", n, clients)
		}
	})
	if log := s.Log(t); strings.Contains(log, "level=ERROR") {
		t.Errorf("the server logged errors: %.2000s", log[strings.Index(log, "level=ERROR"):])
	}
}
