package concepts

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// requestTimeout bounds a request of a test. No request may take that long; a machine that is busy may.
const requestTimeout = 90 * time.Second

// client sends requests as they are, as curl would, and reads the answers to their end.
type client struct {
	url  string
	http *http.Client
}

// newClient makes a client with the identity that config has.
func newClient(t testing.TB, config *rest.Config) *client {
	t.Helper()
	h, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	h.Timeout = requestTimeout
	return &client{url: config.Host, http: h}
}

// header are the headers of a request, name and value in turn.
type header []string

// answer is a response, with its whole body.
type answer struct {
	request string // method and path, for messages
	Code    int
	Header  http.Header
	Body    []byte
}

// send sends a request. The body is nil, bytes or a string, which are sent as they are, or what is sent as JSON.
func (c *client) send(t testing.TB, method, path string, headers header, body any) answer {
	t.Helper()
	response := c.open(t, method, path, headers, body)
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return answer{request: method + " " + path, Code: response.StatusCode, Header: response.Header, Body: read}
}

// open sends a request whose answer the caller reads and closes: a watch.
func (c *client) open(t testing.TB, method, path string, headers header, body any) *http.Response {
	t.Helper()
	var reader io.Reader
	kind := ""
	switch b := body.(type) {
	case nil:
	case []byte:
		reader = bytes.NewReader(b)
	case string:
		reader = strings.NewReader(b)
	default:
		text, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		reader = bytes.NewReader(text)
	}
	if reader != nil {
		kind = "application/json"
	}
	request, err := http.NewRequestWithContext(t.Context(), method, c.url+path, reader)
	if err != nil {
		t.Fatal(err)
	}
	if kind != "" {
		request.Header.Set("Content-Type", kind)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := c.http.Do(request)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return response
}

// What most requests are.

func (c *client) get(t testing.TB, path string) answer {
	t.Helper()
	return c.send(t, http.MethodGet, path, nil, nil)
}

func (c *client) post(t testing.TB, path string, body any) answer {
	t.Helper()
	return c.send(t, http.MethodPost, path, nil, body)
}

func (c *client) put(t testing.TB, path string, body any) answer {
	t.Helper()
	return c.send(t, http.MethodPut, path, nil, body)
}

func (c *client) delete(t testing.TB, path string) answer {
	t.Helper()
	return c.send(t, http.MethodDelete, path, nil, nil)
}

// The media types of patches.
const (
	jsonPatch      = "application/json-patch+json"
	mergePatch     = "application/merge-patch+json"
	strategicPatch = "application/strategic-merge-patch+json"
	applyPatch     = "application/apply-patch+yaml"
)

func (c *client) patch(t testing.TB, kind, path string, body any) answer {
	t.Helper()
	return c.send(t, http.MethodPatch, path, header{"Content-Type", kind}, body)
}

// want fails the test unless the code is one of these.
func (a answer) want(t testing.TB, codes ...int) answer {
	t.Helper()
	for _, code := range codes {
		if a.Code == code {
			return a
		}
	}
	t.Fatalf("%s: the answer is %d instead of %v:\n%s", a.request, a.Code, codes, a.Body)
	return a
}

// refused fails the test unless the answer is a Status of failure with this code and reason whose message has these parts.
func (a answer) refused(t testing.TB, code int, reason string, parts ...string) answer {
	t.Helper()
	a.want(t, code)
	if got := a.text(t, "kind"); got != "Status" {
		t.Fatalf("%s: the answer is a %q instead of a Status:\n%s", a.request, got, a.Body)
	}
	if got := a.text(t, "reason"); got != reason {
		t.Errorf("%s: the reason is %q instead of %q:\n%s", a.request, got, reason, a.Body)
	}
	for _, part := range parts {
		if message := a.text(t, "message"); !strings.Contains(message, part) {
			t.Errorf("%s: the message lacks %q:\n%s", a.request, part, message)
		}
	}
	return a
}

// object is the body, JSON or YAML, as unstructured content.
func (a answer) object(t testing.TB) map[string]any {
	t.Helper()
	var object map[string]any
	if err := yaml.Unmarshal(a.Body, &object); err != nil {
		t.Fatalf("%s: the answer is no object: %v\n%s", a.request, err, a.Body)
	}
	return object
}

// text is a field of the body that is a string, or "" if there is none.
func (a answer) text(t testing.TB, fields ...string) string {
	t.Helper()
	value, _, err := unstructured.NestedString(a.object(t), fields...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", a.request, err, a.Body)
	}
	return value
}

// value is a field of the body, and nil if there is none. Numbers are float64.
func (a answer) value(t testing.TB, fields ...string) any {
	t.Helper()
	value, _, err := unstructured.NestedFieldNoCopy(a.object(t), fields...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", a.request, err, a.Body)
	}
	return value
}

// version is the resourceVersion of an object or of a list.
func (a answer) version(t testing.TB) string {
	t.Helper()
	return a.text(t, "metadata", "resourceVersion")
}

// names are those of a list's items, in order.
func (a answer) names(t testing.TB) []string {
	t.Helper()
	items, _ := a.value(t, "items").([]any)
	names := make([]string, 0, len(items))
	for _, item := range items {
		name, _, err := unstructured.NestedString(item.(map[string]any), "metadata", "name")
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}

// configMap is the object that most promises are shown with.
func configMap(name string, data map[string]string) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}, "data": data}
}
