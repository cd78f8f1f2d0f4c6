package connections

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sqube/sqube/test/harness"
)

// TestBodies has clients that send half a body and then nothing, or end, and one that sends it late but whole.
func TestBodies(t *testing.T) {
	const short = 200 * time.Millisecond
	none := func(*http.Request, *request.RequestInfo) bool { return false }
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			read := make(chan error, 1)
			var timeout time.Duration
			handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				Bodies(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/unread" {
						w.WriteHeader(http.StatusForbidden)
						return
					}
					_, err := io.ReadAll(r.Body)
					read <- err
				}), none, timeout).ServeHTTP(w, r)
			})
			server := serving(t, New(), withVerb("create", handler))
			transport := server.Client().Transport.(*http.Transport).Clone()
			transport.TLSClientConfig.NextProtos, transport.Protocols = nil, new(http.Protocols)
			transport.Protocols.SetHTTP1(protocol == "HTTP/1.1")
			transport.Protocols.SetHTTP2(protocol == "HTTP/2.0")
			post := func(path string) *io.PipeWriter {
				rest, writer := io.Pipe()
				t.Cleanup(func() { writer.Close() })
				body := struct {
					io.Reader
					io.Closer
				}{io.MultiReader(strings.NewReader("half"), rest), rest}
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+path, body)
				harness.Must(t, err)
				go func() {
					if response, err := transport.RoundTrip(r); err == nil {
						response.Body.Close()
					}
				}()
				return writer
			}

			timeout = short
			post("/")
			if err := within(t, "the body is given up", read); apierrors.ReasonForError(err) != "Timeout" {
				t.Errorf("half a body is read with %v", err)
			}
			timeout = time.Hour
			whole := post("/")
			harness.Must(t, whole.Close())
			if err := within(t, "the body is read", read); err != nil {
				t.Errorf("a whole body is read with %v", err)
			}
			harness.Must(t, post("/").CloseWithError(io.ErrUnexpectedEOF))
			if err := within(t, "the body is cut off", read); !apierrors.IsBadRequest(err) {
				t.Errorf("a body that is cut off is read with %v", err)
			}
			ended := post("/unread")
			closed := make(chan error, 1)
			go func() {
				for {
					if _, err := io.WriteString(ended, "more"); err != nil {
						closed <- err
						return
					}
					time.Sleep(time.Millisecond)
				}
			}()
			if err := within(t, "the refused body is given up", closed); err == nil {
				t.Error("it was read")
			}
		})
	}
}
