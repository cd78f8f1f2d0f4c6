package kit

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Stream is a running watch in JSON.
type Stream struct {
	Request string
	Header  http.Header
	Decoder *json.Decoder
	Close   func() error
}

// Event is an event of a watch.
type Event struct {
	Type   string
	Object map[string]any
}

// Watch opens a watch, which ends with the test or with Stop. The path includes the parameter watch, and others.
func (c *Client) Watch(t testing.TB, path string) *Stream {
	t.Helper()
	response := c.Open(t, http.MethodGet, path, nil, nil)
	t.Cleanup(func() { response.Body.Close() })
	if response.StatusCode != http.StatusOK {
		body, err := io.ReadAll(response.Body)
		t.Fatalf("GET %s: the status is %d: %s %v", path, response.StatusCode, body, err)
	}
	return &Stream{Request: "GET " + path, Header: response.Header, Decoder: json.NewDecoder(bufio.NewReader(response.Body)), Close: response.Body.Close}
}

// Next waits for an event.
func (s *Stream) Next(t testing.TB) Event {
	t.Helper()
	var e Event
	if err := s.Decoder.Decode(&e); err != nil {
		t.Fatalf("%s: no more events: %v", s.Request, err)
	}
	return e
}

// End waits for the end of the stream, which must have no more events.
func (s *Stream) End(t testing.TB) {
	t.Helper()
	var e Event
	if err := s.Decoder.Decode(&e); !errors.Is(err, io.EOF) {
		t.Fatalf("%s: got %v, %v instead of the end", s.Request, e, err)
	}
}

// Stop ends the watch.
func (s *Stream) Stop() { s.Close() }

// Name returns the name of the event's object.
func (e Event) Name() string {
	name, _, _ := unstructured.NestedString(e.Object, "metadata", "name")
	return name
}

// ResourceVersion returns the resourceVersion of the event's object.
func (e Event) ResourceVersion() string {
	version, _, _ := unstructured.NestedString(e.Object, "metadata", "resourceVersion")
	return version
}
