package connections

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sqube/sqube/test/harness"
)

// writeTimeout limits how long a test waits for something that does not happen.
const writeTimeout = time.Minute

// serving starts a server whose connections c tracks.
func serving(t *testing.T, c *Connections, handler http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	c.Configure(server.Config, DefaultMaxStreams, writeTimeout)
	server.Listener = c.Listen(server.Listener)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// within waits for a value from happened, and returns it.
func within[T any](t *testing.T, what string, happened <-chan T) T {
	t.Helper()
	select {
	case value := <-happened:
		return value
	case <-time.After(writeTimeout):
		t.Fatalf("timed out waiting: %s", what)
		panic("unreachable")
	}
}

// leaving is a filter that returns when the request ends, even if its handler still runs, like upstream's timeout filter.
func leaving(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		go next.ServeHTTP(w, r)
		<-r.Context().Done()
	})
}

func TestUntilDone(t *testing.T) {
	for _, over := range []struct {
		name  string
		end   func(context.Context) (context.Context, context.CancelFunc)
		waits bool
	}{
		{"client is gone", func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return ctx, cancel
		}, true},
		{"took too long", func(ctx context.Context) (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, 0) }, false},
	} {
		t.Run(over.name, func(t *testing.T) {
			account := &connection{}
			begun, finish := make(chan struct{}, maxTimedOut+1), make(chan struct{})
			handler := UntilDone(leaving, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				begun <- struct{}{}
				<-finish
			}))
			serve := func() chan struct{} {
				ctx, cancel := over.end(context.WithValue(t.Context(), connectionKey{}, account))
				t.Cleanup(cancel)
				returned := make(chan struct{})
				go func() {
					defer close(returned)
					handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/", nil))
				}()
				within(t, "the handler runs", begun)
				return returned
			}
			if !over.waits {
				for range maxTimedOut {
					within(t, "a request that took too long is answered", serve())
				}
			}
			last := serve()
			select {
			case <-last:
				t.Error("the request ended while its handler runs")
			default:
			}
			close(finish)
			within(t, "the request ends with its handler", last)
		})
	}
}

// asUser stands in for authentication.
func asUser(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := request.WithUser(r.Context(), &user.DefaultInfo{Name: r.Header.Get("User")})
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// TestUnknownRequests runs more unauthenticated requests than are allowed.
func TestUnknownRequests(t *testing.T) {
	c := New()
	begun, finish := make(chan struct{}), make(chan struct{})
	server := serving(t, c, c.Admit(asUser(c.Authenticated(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		begun <- struct{}{}
		<-finish
	})))))
	send := func(client *http.Client, name string) <-chan int {
		status := make(chan int, 1)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		harness.Must(t, err)
		request.Header.Set("User", name)
		go func() {
			response, err := client.Do(request)
			if err != nil {
				status <- 0
				return
			}
			response.Body.Close()
			status <- response.StatusCode
		}()
		return status
	}
	newClient := func() *http.Client {
		transport := server.Client().Transport.(*http.Transport).Clone()
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport}
	}
	var running []<-chan int
	var client *http.Client
	const perConnection = 51
	for i := range maxUnknownRequests / (perConnection - 1) * perConnection {
		if i%perConnection == 0 {
			client = newClient()
		}
		running = append(running, send(client, user.Anonymous))
		within(t, "a request runs", begun)
	}
	if got := within(t, "one more is refused", send(client, user.Anonymous)); got != http.StatusTooManyRequests {
		t.Errorf("one more got status %d", got)
	}
	other := newClient()
	for range perConnection { // the first one authenticates the client
		running = append(running, send(other, "jane"))
		within(t, "a request of another client runs", begun)
	}
	close(finish)
	for _, status := range running {
		if got := within(t, "a request is answered", status); got != http.StatusOK {
			t.Errorf("it got status %d", got)
		}
	}
}
