package concepts

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// stream is a running watch in JSON.
type stream struct {
	request string
	Header  http.Header
	decoder *json.Decoder
	close   func() error
}

// event is one of a watch.
type event struct {
	Type   string
	Object map[string]any
}

// watch opens a watch, which ends with the test or by stop. The path has the parameter watch, and others.
func (c *client) watch(t testing.TB, path string) *stream {
	t.Helper()
	response := c.open(t, http.MethodGet, path, nil, nil)
	t.Cleanup(func() { response.Body.Close() })
	if response.StatusCode != http.StatusOK {
		body, err := io.ReadAll(response.Body)
		t.Fatalf("GET %s: the answer is %d: %s %v", path, response.StatusCode, body, err)
	}
	return &stream{request: "GET " + path, Header: response.Header, decoder: json.NewDecoder(bufio.NewReader(response.Body)), close: response.Body.Close}
}

// next waits for an event.
func (s *stream) next(t testing.TB) event {
	t.Helper()
	var e event
	if err := s.decoder.Decode(&e); err != nil {
		t.Fatalf("%s: no further event: %v", s.request, err)
	}
	return e
}

// end waits for the end of the stream, which must bring nothing more.
func (s *stream) end(t testing.TB) {
	t.Helper()
	var e event
	if err := s.decoder.Decode(&e); !errors.Is(err, io.EOF) {
		t.Fatalf("%s: not its end but %v, %v", s.request, e, err)
	}
}

// stop ends the watch.
func (s *stream) stop() { s.close() }

// name of the event's object.
func (e event) name() string {
	name, _, _ := unstructured.NestedString(e.Object, "metadata", "name")
	return name
}

// version is the resourceVersion of the event's object.
func (e event) version() string {
	version, _, _ := unstructured.NestedString(e.Object, "metadata", "resourceVersion")
	return version
}
