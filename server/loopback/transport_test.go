package loopback

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqube/sqube/test/harness"
)

// patience is how long a test waits for something that should happen at once.
const patience = 10 * time.Second

func serving(t *testing.T, h http.HandlerFunc) *Transport {
	t.Helper()
	tr := New(context.Background())
	tr.SetHandler(h)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := tr.Shutdown(ctx); err != nil {
			t.Errorf("a handler did not end: %v", err)
		}
	})
	return tr
}

func get(t *testing.T, ctx context.Context, tr http.RoundTripper, path string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, host+path, nil)
	harness.Must(t, err)
	resp, err := tr.RoundTrip(req)
	harness.Must(t, err)
	return resp
}

func await(t *testing.T, what string, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(patience):
		t.Fatalf("waited %v for %s", patience, what)
	}
}

func TestRequestArrivesAsOnAServer(t *testing.T) {
	type outer struct{}
	tr := serving(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if r.Context().Value(outer{}) != nil {
			t.Error("the caller's context values reached the handler")
		}
		r.Header.Del("Authorization")
		w.Header().Set("X-Sent", "before")
		w.WriteHeader(http.StatusCreated)
		w.Header().Set("X-Sent", "after")
		fmt.Fprintf(w, "%s %s %q %d %s", r.Method, r.RequestURI, body, r.ContentLength, r.URL.Host)
	})
	ctx := context.WithValue(context.Background(), outer{}, "x")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, host+"/api/v1/a%2Fb?x=1", strings.NewReader("hello"))
	harness.Must(t, err)
	req.Header.Set("Authorization", "Bearer x")
	resp, err := tr.RoundTrip(req)
	harness.Must(t, err)
	got, err := io.ReadAll(resp.Body)
	harness.Must(t, err)
	if want := `POST /api/v1/a%2Fb?x=1 "hello" 5 `; string(got) != want {
		t.Errorf("the handler saw %q, want %q", got, want)
	}
	if resp.StatusCode != http.StatusCreated || resp.Header.Get("X-Sent") != "before" {
		t.Errorf("got %s with headers %v", resp.Status, resp.Header)
	}
	if req.Header.Get("Authorization") == "" {
		t.Error("the handler changed the client's request")
	}
}

func TestBodyStreams(t *testing.T) {
	next := make(chan string)
	tr := serving(t, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		for s := range next {
			if _, err := io.WriteString(w, s); err != nil {
				t.Error(err)
			}
		}
	})
	resp := get(t, context.Background(), tr, "/watch") // returns although nothing has been written
	buf := make([]byte, 100)
	for _, event := range []string{"first", "second"} {
		next <- event
		n, err := resp.Body.Read(buf)
		if err != nil || string(buf[:n]) != event {
			t.Fatalf("read %q, %v; want %q", buf[:n], err, event)
		}
	}
	close(next)
	if n, err := resp.Body.Read(buf); n != 0 || err != io.EOF {
		t.Fatalf("after the handler's end: %d, %v", n, err)
	}
}

func TestLargeBodyArrivesWhole(t *testing.T) {
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	tr := serving(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(want)))
		if _, err := w.Write(want); err != nil {
			t.Error(err)
		}
	})
	resp := get(t, context.Background(), tr, "/")
	got, err := io.ReadAll(resp.Body)
	if err != nil || !bytes.Equal(got, want) || resp.ContentLength != int64(len(want)) {
		t.Fatalf("got %d bytes (announced %d), %v", len(got), resp.ContentLength, err)
	}
}

func TestHandlerEndsWithItsClient(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(cancel func(), body io.Closer)
		want error
	}{
		{"context cancelled", func(cancel func(), _ io.Closer) { cancel() }, context.Canceled},
		{"body closed", func(_ func(), body io.Closer) { _ = body.Close() }, errBodyClosed},
	} {
		t.Run(c.name, func(t *testing.T) {
			ended := make(chan struct{})
			tr := serving(t, func(w http.ResponseWriter, r *http.Request) {
				defer close(ended)
				//lint:ignore SA1019 apiserver's filters use it
				notified := w.(http.CloseNotifier).CloseNotify()
				w.WriteHeader(http.StatusOK)
				<-r.Context().Done()
				<-notified
				if _, err := w.Write([]byte("late")); !errors.Is(err, c.want) {
					t.Errorf("writing without a client: %v, want %v", err, c.want)
				}
			})
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			resp := get(t, ctx, tr, "/watch")
			c.end(cancel, resp.Body)
			await(t, "the handler", ended)
			if _, err := resp.Body.Read(make([]byte, 1)); !errors.Is(err, c.want) {
				t.Errorf("reading: %v, want %v", err, c.want)
			}
		})
	}
}

func TestBlockedWriterEndsWithItsClient(t *testing.T) {
	ended := make(chan struct{})
	tr := serving(t, func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		for {
			if _, err := w.Write(make([]byte, pipeBuffer/3)); err != nil {
				return
			}
		}
	})
	resp := get(t, context.Background(), tr, "/")
	harness.Must(t, resp.Body.Close())
	await(t, "the handler", ended)
}

func TestCancelBeforeHeaders(t *testing.T) {
	started := make(chan struct{})
	tr := serving(t, func(w http.ResponseWriter, r *http.Request) {
		close(started)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-started; cancel() }()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, host, nil)
	harness.Must(t, err)
	if _, err := tr.RoundTrip(req); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want context.Canceled", err)
	}
}

func TestPanicBecomesAnError(t *testing.T) {
	tr := serving(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/late" {
			_, _ = io.WriteString(w, "partial")
		}
		panic(http.ErrAbortHandler)
	})
	req, err := http.NewRequest(http.MethodGet, host+"/early", nil)
	harness.Must(t, err)
	var p *PanicError
	if _, err := tr.RoundTrip(req); !errors.As(err, &p) || !errors.Is(err, http.ErrAbortHandler) {
		t.Errorf("before headers: got %v", err)
	}
	got, err := io.ReadAll(get(t, context.Background(), tr, "/late").Body)
	if string(got) != "partial" || !errors.As(err, &p) {
		t.Errorf("after headers: got %q, %v", got, err)
	}
}

func TestNoBodyAnswers(t *testing.T) {
	tr := serving(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead {
			w.Header().Set("Content-Length", "4")
			_, err := io.WriteString(w, "body")
			if err != nil {
				t.Error(err)
			}
			return
		}
		w.WriteHeader(http.StatusNoContent)
		if _, err := io.WriteString(w, "body"); !errors.Is(err, http.ErrBodyNotAllowed) {
			t.Errorf("body of a 204: %v", err)
		}
	})
	for _, method := range []string{http.MethodHead, http.MethodGet} {
		req, err := http.NewRequest(method, host, nil)
		harness.Must(t, err)
		resp, err := tr.RoundTrip(req)
		harness.Must(t, err)
		if got, err := io.ReadAll(resp.Body); err != nil || len(got) != 0 {
			t.Errorf("%s: got body %q, %v", method, got, err)
		}
	}
}

func TestRequestsWaitForTheHandler(t *testing.T) {
	tr := New(context.Background())
	early := make(chan struct{})
	go func() {
		defer close(early)
		req, err := http.NewRequest(http.MethodGet, host, nil)
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := tr.RoundTrip(req); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, host, nil)
	harness.Must(t, err)
	if _, err := tr.RoundTrip(req); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting with a context that has ended: %v", err)
	}
	tr.SetHandler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	await(t, "the early request", early)
}

func TestShutdown(t *testing.T) {
	tr := New(context.Background())
	started := make(chan struct{})
	tr.SetHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		close(started)
		<-r.Context().Done()
	}))
	resp := get(t, context.Background(), tr, "/watch")
	await(t, "the handler", started)
	harness.Must(t, tr.Shutdown(context.Background()))
	if got, err := io.ReadAll(resp.Body); err != nil || len(got) != 0 {
		t.Errorf("a watch at shutdown should end cleanly, got %q, %v", got, err)
	}
	for _, tr := range []*Transport{tr, New(context.Background())} {
		harness.Must(t, tr.Shutdown(context.Background()))
		req, err := http.NewRequest(http.MethodGet, host, nil)
		harness.Must(t, err)
		if _, err := tr.RoundTrip(req); !errors.Is(err, ErrShutdown) {
			t.Errorf("after Shutdown: %v", err)
		}
	}
}

func TestManyAtOnce(t *testing.T) {
	tr := serving(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	})
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			want := strings.Repeat(fmt.Sprint(i), 10_000*(i%8+1))
			for range 20 {
				resp, err := (&http.Client{Transport: tr, Timeout: patience}).Post(host, "text/plain", strings.NewReader(want))
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.ReadAll(resp.Body)
				if err != nil || string(got) != want {
					t.Errorf("client %d got %d bytes, %v", i, len(got), err)
				}
				if err := resp.Body.Close(); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	wg.Wait()
}
