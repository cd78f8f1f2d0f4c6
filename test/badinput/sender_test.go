package badinput

import (
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// badCase is one request.
type badCase struct {
	name   string
	method string
	path   string // with its query, encoded
	// body is sent as it is, of the type contentType, JSON by default.
	body        string
	contentType string
	header      map[string]string
	as          identity
	// waits tells that the server lets the client wait for seconds, so that others go on meanwhile. Such a case changes
	// nothing and depends on nothing that others change.
	waits bool
	// instead is the code to expect where kube-apiserver fails itself, by a 500 or by not answering at all.
	instead int
}

// identity is who sends a request.
type identity int

const (
	administrator identity = iota
	anonymous
	wrongToken // one that no server has given out
)

// answer is what came back, without what differs from run to run.
type answer struct {
	Code        int      `json:"code"`
	ContentType string   `json:"contentType,omitempty"`
	Warnings    []string `json:"warnings,omitempty"`
	// JSON is the body where it is JSON, Text otherwise.
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
		if err != nil {
			t.Fatal(err)
		}
		// A redirect is an answer of its own.
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		t.Cleanup(client.CloseIdleConnections)
		s.clients[id] = client
	}
	return s
}

// send sends the case and returns the answer.
func (s *sender) send(t *testing.T, c badCase) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), c.method, s.url+c.path, strings.NewReader(c.body))
	if err != nil {
		t.Fatal(err)
	}
	if c.body != "" || c.contentType != "" {
		request.Header.Set("Content-Type", cmpOr(c.contentType, "application/json"))
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
	// Watches that begin would not end; what they begin with is in the first bytes.
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		t.Fatalf("%s: %s %s: read the answer: %v", c.name, c.method, short(c.path), err)
	}
	a := answer{Code: response.StatusCode, ContentType: response.Header.Get("Content-Type"), Warnings: response.Header["Warning"]}
	if json.Unmarshal(body, &a.JSON) == nil {
		a.JSON = normalize(a.JSON, "")
	} else {
		a.Text = normalizeText(string(body))
	}
	return a
}

func cmpOr(value, otherwise string) string {
	if value != "" {
		return value
	}
	return otherwise
}

// volatile are fields whose values no two runs share.
var volatile = map[string]bool{
	"uid": true, "resourceVersion": true, "creationTimestamp": true, "time": true, "deletionTimestamp": true, "lastTransitionTime": true,
	"lastUpdateTime": true, "clusterIP": true, "clusterIPs": true, "token": true, "expirationTimestamp": true,
}

// normalize replaces what differs from run to run.
func normalize(value any, field string) any {
	switch v := value.(type) {
	case map[string]any:
		delete(v, "managedFields") // which are long, and compared elsewhere
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

// namesOf returns the names of a list's items, without that of a ConfigMap which a controller makes where there is one.
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

// variable are the parts of texts that no two runs share: uids, times, generated names, and revisions of the store.
var variable = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UID"},
	{regexp.MustCompile(`\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z`), "TIME"},
	{regexp.MustCompile(`kube-api-access-[a-z0-9]{5}`), "kube-api-access-N"},
	{regexp.MustCompile(`(resourceVersion\\?":\\?")\d+`), "${1}N"},
	{regexp.MustCompile(`Key: /(registry|core)/`), "Key: /…/"}, // where a store keeps it is its own affair
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
