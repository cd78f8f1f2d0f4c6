package kit

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// RequestTimeout limits a request of a test, generously in case the machine is busy.
const RequestTimeout = 90 * time.Second

// Client sends requests unchanged, like curl, and reads responses to their end.
type Client struct {
	URL  string
	HTTP *http.Client
}

// NewClient returns a client with the identity in config.
func NewClient(t testing.TB, config *rest.Config) *Client {
	t.Helper()
	h := Must(rest.HTTPClientFor(config))(t)
	h.Timeout = RequestTimeout
	return &Client{URL: config.Host, HTTP: h}
}

// Header are the headers of a request, name and value in turn.
type Header []string

// Send sends a request. The body is nil, bytes or a string, which are sent unchanged, or a value that is sent as JSON.
func (c *Client) Send(t testing.TB, method, path string, headers Header, body any) Answer {
	t.Helper()
	response := c.Open(t, method, path, headers, body)
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return Answer{Request: method + " " + path, Code: response.StatusCode, Header: response.Header, Body: read}
}

// Open sends a request, such as a watch, whose response the caller reads and closes.
func (c *Client) Open(t testing.TB, method, path string, headers Header, body any) *http.Response {
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
		text := Must(json.Marshal(b))(t)
		reader = bytes.NewReader(text)
	}
	if reader != nil {
		kind = "application/json"
	}
	request := Must(http.NewRequestWithContext(t.Context(), method, c.URL+path, reader))(t)
	if kind != "" {
		request.Header.Set("Content-Type", kind)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := c.HTTP.Do(request)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return response
}

// The most common requests.

func (c *Client) Get(t testing.TB, path string) Answer {
	t.Helper()
	return c.Send(t, http.MethodGet, path, nil, nil)
}

func (c *Client) Post(t testing.TB, path string, body any) Answer {
	t.Helper()
	return c.Send(t, http.MethodPost, path, nil, body)
}

func (c *Client) Put(t testing.TB, path string, body any) Answer {
	t.Helper()
	return c.Send(t, http.MethodPut, path, nil, body)
}

func (c *Client) Delete(t testing.TB, path string) Answer {
	t.Helper()
	return c.Send(t, http.MethodDelete, path, nil, nil)
}

// The media types of patches.
const (
	JSONPatch      = "application/json-patch+json"
	MergePatch     = "application/merge-patch+json"
	StrategicPatch = "application/strategic-merge-patch+json"
	ApplyPatch     = "application/apply-patch+yaml"
)

func (c *Client) Patch(t testing.TB, kind, path string, body any) Answer {
	t.Helper()
	return c.Send(t, http.MethodPatch, path, Header{"Content-Type", kind}, body)
}

// NextPage returns the page after one. The query is that of the first, and may end in "?".
func (c *Client) NextPage(t testing.TB, query string, page Answer) Answer {
	t.Helper()
	return c.Get(t, query+"&continue="+url.QueryEscape(page.Text(t, "metadata", "continue"))).OK(t)
}

// Values of the Accept header.

const TableJSON = "application/json;as=Table;v=v1;g=meta.k8s.io"

func AsTable(mediaType, version string) string {
	return mediaType + ";as=Table;v=" + version + ";g=meta.k8s.io"
}

func AsMetadata(mediaType, version string) string {
	return mediaType + ";as=PartialObjectMetadata;v=" + version + ";g=meta.k8s.io"
}

func AsMetadataList(mediaType, version string) string {
	return mediaType + ";as=PartialObjectMetadataList;v=" + version + ";g=meta.k8s.io"
}

// ModifiedMessage is the message of the conflict of an update whose resourceVersion is not the newest.
const ModifiedMessage = "the object has been modified; please apply your changes to the latest version and try again"
