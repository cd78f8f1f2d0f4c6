package serve

import (
	"fmt"
	"net/http/httptrace"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/sqube/sqube/test/harness"
)

// TestPause pauses a server, like a debugger or a suspended machine. Requests sent meanwhile are processed when it resumes, and
// a watch misses nothing.
func TestPause(t *testing.T) {
	t.Parallel()
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		s := serve(t, []string{"--datastore", engine.Datastore})
		w := newWriter(t, s)
		harness.Must(t, s.Signal(syscall.SIGSTOP))
		harness.Retry(t, "the server is stopped", func() error {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.Pid()))
			if err == nil && !strings.Contains(string(stat), ") T ") {
				err = fmt.Errorf("it is %s", stat)
			}
			return err
		})
		var sending, asking sync.WaitGroup
		for i := range 10 {
			sending.Add(1)
			asking.Go(func() {
				sent := &httptrace.ClientTrace{WroteHeaders: sync.OnceFunc(sending.Done)}
				if err := w.send(httptrace.WithClientTrace(t.Context(), sent), t, fmt.Sprint("paused-", i)); err != nil {
					t.Error(err)
				}
			})
		}
		sending.Wait()
		harness.Must(t, s.Signal(syscall.SIGCONT))
		asking.Wait()
		w.creates(t, "after")
		w.serves(t)
		s.Stop(t)
	})
}
