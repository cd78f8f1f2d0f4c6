package servertest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sqube/sqube/server/pipenet"
	"github.com/sqube/sqube/test/harness"
)

// TestFaults checks that the faults of requests and watches happen under some seed, and that a seed decides them, and delays, by what is
// asked, whatever else happened before. A watch that does not break has its events as the server sent them.
func TestFaults(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			first := newFaults(seed, []Fault{Restarts}) // these happen at a time
			puts, watches := ask(t, first, put), ask(t, first, watched)
			again := newFaults(seed, []Fault{Restarts})
			if w, p := ask(t, again, watched), ask(t, again, put); !slices.Equal(puts, p) || !slices.Equal(watches, w) {
				t.Errorf("seed %d: first %q and %q, then %q and %q", seed, puts, watches, p, w)
			}
			for _, what := range append(puts, watches...) {
				what, _, _ = strings.Cut(what, " after ")
				seen[what] = true
			}
		})
	}
	for _, what := range []string{"PUT 200", "PUT 409", "PUT 429", "PUT connection reset by peer", "GET 200", "GET 429", "GET 410", "GET unexpected EOF"} {
		if !seen[what] {
			t.Errorf("%q does not happen in %v", what, seen)
		}
	}
}

// ask sends a request 20 times, and returns what happens and how long it takes.
func ask(t *testing.T, f *faults, request func() *http.Request) (outcomes []string) {
	f.start = time.Now()
	client := &unsteady{faults: f, client: "client", next: transport(events3)}
	for range 20 {
		begin, r := time.Now(), request()
		answer, err := client.RoundTrip(r)
		what := ""
		if err == nil {
			what = fmt.Sprint(answer.StatusCode)
			var content []byte
			content, err = io.ReadAll(answer.Body)
			answer.Body.Close()
			if err == nil && answer.StatusCode == http.StatusOK && string(content) != string(events3) {
				t.Errorf("the events are %q", content)
			}
		}
		switch {
		case errors.Is(err, syscall.ECONNRESET):
			what = syscall.ECONNRESET.Error()
		case err != nil:
			what = err.Error()
		}
		outcomes = append(outcomes, fmt.Sprintf("%s %s after %v", r.Method, what, time.Since(begin)))
	}
	return outcomes
}

func put() *http.Request {
	r, err := http.NewRequest(http.MethodPut, "https://server/api/v1/namespaces/default/configmaps/a", strings.NewReader(`{"metadata": {"resourceVersion": "7"}}`))
	if err != nil {
		panic(err)
	}
	return r
}

func watched() *http.Request {
	r, err := http.NewRequest(http.MethodGet, "https://server/api/v1/configmaps?watch=true&resourceVersion=7", nil)
	if err != nil {
		panic(err)
	}
	return r
}

// events3 are three events of a watch in protobuf.
var events3 = func() (all []byte) {
	for _, event := range []string{"one", "two", ""} {
		all = append(binary.BigEndian.AppendUint32(all, uint32(len(event))), event...)
	}
	return all
}()

// transport answers every request, a byte per second.
type transport []byte

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	body, writer := io.Pipe()
	go func() {
		for _, b := range t {
			if err := sleep(r.Context(), time.Second); err != nil {
				writer.CloseWithError(err)
				return
			}
			if _, err := writer.Write([]byte{b}); err != nil {
				return
			}
		}
		writer.Close()
	}()
	header := http.Header{"Content-Type": {runtime.ContentTypeProtobuf + ";stream=watch"}}
	return &http.Response{StatusCode: http.StatusOK, Header: header, Body: body, Request: r}, nil
}

// TestSlowWebhooks checks that under some seed a webhook gets requests late, but before the API server gives up.
func TestSlowWebhooks(t *testing.T) {
	var longest time.Duration
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			network := &pipenet.Network{}
			plain, err := network.Listen("tcp", "127.0.0.1:0")
			harness.Must(t, err)
			listener := &slowListener{Listener: plain, faults: newFaults(seed, nil)}
			go func() {
				conn, err := network.Dial(t.Context(), "tcp", listener.Addr().String())
				if err == nil {
					conn.Write([]byte("request"))
					conn.Close()
				}
			}()
			begin := time.Now()
			conn, err := listener.Accept()
			harness.Must(t, err)
			if content, err := io.ReadAll(conn); err != nil || string(content) != "request" {
				t.Errorf("the webhook gets %q: %v", content, err)
			}
			longest = max(longest, time.Since(begin))
		})
	}
	if longest < logged || longest > 2*slowestWebhook {
		t.Errorf("the slowest request takes %v", longest)
	}
}
