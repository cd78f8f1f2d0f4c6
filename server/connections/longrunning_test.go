package connections

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sqube/sqube/test/harness"
)

// all reports that every request is long-running.
func all(*http.Request, *request.RequestInfo) bool { return true }

// withVerb is a filter that sets a request's verb.
func withVerb(verb string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(request.WithRequestInfo(r.Context(), &request.RequestInfo{Verb: verb})))
	})
}

// TestLongRunning has clients that do not read: watches end, logs don't.
func TestLongRunning(t *testing.T) {
	const short = 100 * time.Millisecond
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		for verb, ends := range map[string]bool{"watch": true, "log": false} {
			t.Run(protocol+" "+verb, func(t *testing.T) {
				written, progress := make(chan struct{}), make(chan struct{}, 1)
				handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					defer close(written)
					block := make([]byte, 1<<20)
					for {
						if _, err := w.Write(block); err != nil {
							return
						}
						w.(http.Flusher).Flush()
						select {
						case progress <- struct{}{}:
						default:
						}
					}
				})
				server := serving(t, New(), withVerb(verb, LongRunning(handler, all, short)))
				transport := server.Client().Transport.(*http.Transport).Clone()
				transport.TLSClientConfig.NextProtos, transport.Protocols = nil, new(http.Protocols)
				transport.Protocols.SetHTTP1(protocol == "HTTP/1.1")
				transport.Protocols.SetHTTP2(protocol == "HTTP/2.0")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
				harness.Must(t, err)
				response, err := transport.RoundTrip(r)
				if err != nil || response.Proto != protocol {
					t.Fatal(response, err)
				}
				defer response.Body.Close()
				if ends {
					within(t, "a response that is not read ends", written)
					return
				}
				for range 20 { // it stalls longer than a watch may, and continues when it is read
					select {
					case <-written:
						t.Fatal("it ended")
					case <-time.After(short / 10):
					}
				}
				for len(progress) > 0 {
					<-progress
				}
				go func() { _, _ = io.Copy(io.Discard, response.Body) }()
				within(t, "it continues", progress)
				cancel()
				within(t, "it ends with its client", written)
			})
		}
	}
}

// TestEndedWatchesAreForgotten ends many watches of a connection at once, and then the connection. Nothing may keep it in memory.
func TestEndedWatchesAreForgotten(t *testing.T) {
	const watches = 100
	forgotten := make(chan struct{})
	ends := make(chan struct{})
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/first" {
			runtime.AddCleanup(of(r), func(c chan struct{}) { close(c) }, forgotten)
			return
		}
		w.(http.Flusher).Flush()
		<-ends
	})
	server := serving(t, New(), withVerb("watch", LongRunning(handler, all, time.Hour)))
	get := func(path string) io.ReadCloser {
		response, err := server.Client().Get(server.URL + path)
		if err != nil || response.ProtoMajor != 2 {
			t.Fatal(response, err)
		}
		return response.Body
	}
	get("/first").Close()
	var open []io.ReadCloser
	for range watches {
		open = append(open, get("/"))
	}
	close(ends)
	for _, body := range open {
		if _, err := io.Copy(io.Discard, body); err != nil {
			t.Error(err)
		}
		body.Close()
	}
	server.Client().CloseIdleConnections()
	collecting := time.NewTicker(10 * time.Millisecond)
	defer collecting.Stop()
	for began := time.Now(); ; <-collecting.C {
		runtime.GC()
		select {
		case <-forgotten:
			return
		default:
		}
		if time.Since(began) > writeTimeout {
			t.Fatal("the connection is still in memory")
		}
	}
}
