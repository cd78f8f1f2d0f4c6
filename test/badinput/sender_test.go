package badinput

import (
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/test/harness"
)

// badCase is one request.
type badCase struct {
	name   string
	method string
	path   string // with its query, encoded
	// body is sent unchanged, with the type contentType, JSON by default.
	body        string
	contentType string
	header      map[string]string
	as          identity
	// waits is set if the server makes the client wait for seconds, so that other cases run meanwhile. Such a case neither
	// changes anything nor depends on other cases' changes.
	waits bool
	// instead is the code to expect if kube-apiserver itself fails, with a 500 or without a response, or decodes more than sqube.
	instead int
}

// identity is who sends a request.
type identity int

const (
	administrator identity = iota
	anonymous
	wrongToken // not issued by any server
)

// answer is a response, without what differs between runs.
type answer struct {
	Code        int      `json:"code"`
	ContentType string   `json:"contentType,omitempty"`
	Warnings    []string `json:"warnings,omitempty"`
	// JSON is the body if it is JSON; otherwise Text is.
	JSON any    `json:"json,omitempty"`
	Text string `json:"text,omitempty"`
}

// sender sends requests to one server.
type sender struct {
	url     string
	clients map[identity]*http.Client
}

func newSender(t *testing.T, config *rest.Config) *sender {
	t.Helper()
	s := &sender{url: strings.TrimSuffix(config.Host, "/"), clients: map[identity]*http.Client{}}
	nobody := rest.AnonymousClientConfig(config)
	stranger := rest.CopyConfig(nobody)
	stranger.BearerToken = "no-server-gave-this-out"
	for id, c := range map[identity]*rest.Config{administrator: config, anonymous: nobody, wrongToken: stranger} {
		c = rest.CopyConfig(c)
		c.Timeout = time.Minute
		client, err := rest.HTTPClientFor(c)
		harness.Must(t, err)
		// Redirects are responses too, and not followed.
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		t.Cleanup(client.CloseIdleConnections)
		s.clients[id] = client
	}
	return s
}

// send sends the case and returns the response.
func (s *sender) send(t *testing.T, c badCase) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), c.method, s.url+c.path, strings.NewReader(c.body))
	harness.Must(t, err)
	if c.body != "" || c.contentType != "" {
		request.Header.Set("Content-Type", cmp.Or(c.contentType, "application/json"))
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "badinput")
	for name, value := range c.header {
		request.Header.Set(name, value)
	}
	response, err := s.clients[c.as].Do(request)
	if err != nil {
		t.Fatalf("%s: %s %s: %v", c.name, c.method, short(c.path), err)
	}
	defer response.Body.Close()
	// Watches that start would not end; their beginning suffices.
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		t.Fatalf("%s: %s %s: reading the response: %v", c.name, c.method, short(c.path), err)
	}
	a := answer{Code: response.StatusCode, ContentType: response.Header.Get("Content-Type"), Warnings: response.Header["Warning"]}
	if json.Unmarshal(body, &a.JSON) == nil {
		a.JSON = normalize(a.JSON, "")
	} else {
		a.Text = normalizeText(string(body))
	}
	return a
}

// volatile are fields with different values in each run.
var volatile = map[string]bool{
	"uid": true, "resourceVersion": true, "creationTimestamp": true, "time": true, "deletionTimestamp": true, "lastTransitionTime": true,
	"lastUpdateTime": true, "clusterIP": true, "clusterIPs": true, "token": true, "expirationTimestamp": true,
}

// normalize replaces what differs between runs.
func normalize(value any, field string) any {
	switch v := value.(type) {
	case map[string]any:
		delete(v, "managedFields") // long, and compared elsewhere
		if items, ok := v["items"].([]any); ok {
			v["items"] = namesOf(items)
		}
		for name, inner := range v {
			v[name] = normalize(inner, name)
		}
	case []any:
		for i := range v {
			v[i] = normalize(v[i], field)
		}
	case string:
		if volatile[field] && v != "" {
			return "…"
		}
		return normalizeText(v)
	}
	return value
}

// namesOf returns the names of a list's items, without that of a ConfigMap that a controller, if any, creates.
func namesOf(items []any) []any {
	names := []any{}
	for _, item := range items {
		object, _ := item.(map[string]any)
		metadata, _ := object["metadata"].(map[string]any)
		if name := metadata["name"]; name != "kube-root-ca.crt" {
			names = append(names, name)
		}
	}
	return names
}

// variable are the parts of strings that differ between runs: uids, times, generated names, and revisions of the store.
var variable = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UID"},
	{regexp.MustCompile(`\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z`), "TIME"},
	{regexp.MustCompile(`kube-api-access-[a-z0-9]{5}`), "kube-api-access-N"},
	{regexp.MustCompile(`(resourceVersion\\?":\\?")\d+`), "${1}N"},
	{regexp.MustCompile(`Key: /(registry|core)/`), "Key: /…/"}, // depends on the store
	{regexp.MustCompile(`current: \d+`), "current: N"},
	{regexp.MustCompile(`too old resource version: (\d+) \(\d+\)`), "too old resource version: $1 (N)"},
	{regexp.MustCompile(`ResourceVersion in record \(\d+\)`), "ResourceVersion in record (N)"},
	{regexp.MustCompile(`reference [0-9a-f-]+`), "reference N"},
}

func normalizeText(s string) string {
	for _, v := range variable {
		s = v.pattern.ReplaceAllString(s, v.with)
	}
	return short(strings.ToValidUTF8(s, "\ufffd"))
}
