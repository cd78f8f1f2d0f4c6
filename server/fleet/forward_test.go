package fleet

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/harness"
)

// peer returns a server that answers with handler, and what passes requests on to it.
func peer(t *testing.T, handler http.HandlerFunc) (*httptest.Server, *peers) {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	transport := s.Client().Transport.(*http.Transport)
	return s, &peers{streams: transport, whole: transportOf(transport.TLSClientConfig, false)}
}

// front returns the URL of a server that passes all requests on to target, and answers itself what had no effect there.
func front(t *testing.T, p *peers, target string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		original := credentials(r.Header)
		r.Header.Del("Authorization") // as who recognizes a user does
		r = r.WithContext(context.WithValue(r.Context(), originalKey{}, original))
		if !p.forward(w, r, target, "/clusters/a/b"+r.URL.Path, "") {
			body, err := io.ReadAll(r.Body)
			fmt.Fprintf(w, "here: %s %v", body, err)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func send(t *testing.T, method, url, body string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	harness.Must(t, err)
	request.Header.Set("Authorization", "Bearer secret")
	request.Header.Set(addressHeader, "198.51.100.1:1")
	response, err := http.DefaultClient.Do(request)
	harness.Must(t, err)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	harness.Must(t, err)
	return string(answer)
}

// TestForward passes requests on to another server, which has what the client has sent, and where its connection comes from.
func TestForward(t *testing.T) {
	s, p := peer(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		host, _, _ := net.SplitHostPort(r.Header.Get(addressHeader))
		fmt.Fprintf(w, "%s %s %s %s %v from %s", r.Method, r.URL, r.Header.Get("Authorization"), body, err, host)
	})
	want := "POST /clusters/a/b/api?x=1 Bearer secret body <nil> from 127.0.0.1"
	if got := send(t, http.MethodPost, front(t, p, s.URL)+"/api?x=1", "body"); got != want {
		t.Errorf("the other server gets %q, not %q", got, want)
	}
}

// TestForwardAgain sends requests to servers that do not serve them: who does next gets them whole, unless they may have had an effect.
func TestForwardAgain(t *testing.T) {
	moves, p := peer(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		moved(w, r)
	})
	breaks, q := peer(t, func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) })
	gone, q2 := peer(t, nil)
	gone.Close()
	for what, test := range map[string]struct{ method, at, want string }{
		"a write to one that has it no more": {http.MethodPost, front(t, p, moves.URL), "here: body <nil>"},
		"a write to one that is gone":        {http.MethodPost, front(t, q2, gone.URL), "here: body <nil>"},
		"a read of one that ends meanwhile":  {http.MethodGet, front(t, q, breaks.URL), "here: body <nil>"},
		"a write to one that ends meanwhile": {http.MethodPost, front(t, q, breaks.URL), "may have had an effect"},
	} {
		if got := send(t, test.method, test.at, "body"); !strings.Contains(got, test.want) {
			t.Errorf("%s: %q, want %q", what, got, test.want)
		}
	}
}

// TestForwardUpgrade passes on a connection that changes to another protocol, as for exec.
func TestForwardUpgrade(t *testing.T) {
	s, p := peer(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", r.Header.Get("Upgrade"))
		w.WriteHeader(http.StatusSwitchingProtocols)
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		line, _ := buffered.ReadString('\n')
		_, _ = fmt.Fprint(conn, "echo "+line)
	})
	url := front(t, p, s.URL)
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	harness.Must(t, err)
	defer conn.Close()
	_, err = fmt.Fprint(conn, "POST /exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n")
	harness.Must(t, err)
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, nil)
	harness.Must(t, err)
	if response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(response.Status)
	}
	_, err = fmt.Fprint(conn, "hello\n")
	harness.Must(t, err)
	if line, err := reader.ReadString('\n'); err != nil || line != "echo hello\n" {
		t.Errorf("the connection brings %q, %v", line, err)
	}
}
