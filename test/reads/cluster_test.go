package reads

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// cluster is a server and its clients.
type cluster struct {
	server  *sqube.Server
	engine  harness.Engine
	config  *rest.Config
	http    *http.Client // sends no implicit Accept-Encoding
	typed   kubernetes.Interface
	dynamic dynamic.Interface
	few     bool // only what depends on the engine is read
}

func newCluster(t *testing.T, server *sqube.Server, engine harness.Engine) *cluster {
	t.Helper()
	config := server.Config(t)
	config.QPS, config.Burst = -1, -1
	c := &cluster{server: server, engine: engine, config: config, few: engine.Name != "sqlite"}
	var err error
	if c.typed, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	if c.dynamic, err = dynamic.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	uncompressed := rest.CopyConfig(config)
	uncompressed.DisableCompression = true
	if c.http, err = rest.HTTPClientFor(uncompressed); err != nil {
		t.Fatal(err)
	}
	return c
}

// answer is an unprocessed response.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

// get sends a GET with the headers, given as name and value in turn. It requests JSON unless they say otherwise.
func (c *cluster) get(t *testing.T, path string, headers ...string) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.config.Host+path, nil)
	harness.Must(t, err)
	request.Header.Set("Accept", "application/json")
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := c.http.Do(request)
	harness.Must(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	return answer{response.StatusCode, response.Header, body}
}

// version returns the resourceVersion of a list or an object.
func (a answer) version(t *testing.T) string {
	t.Helper()
	var object struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.Unmarshal(a.body, &object); err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
	return object.Metadata.ResourceVersion
}

// same reads the path in both ways and fails the test if they differ. It returns the plain response. Objects changed in between
// by controllers are read again.
func (c *cluster) same(t *testing.T, path string, headers ...string) answer {
	t.Helper()
	for range 20 {
		plain, indented := c.get(t, path, headers...), c.get(t, pretty(path), headers...)
		problem := differ(t, plain, indented)
		if problem == nil {
			return plain
		}
		if plain.version(t) == indented.version(t) {
			t.Errorf("GET %s: %v", path, problem)
			return plain
		}
	}
	t.Errorf("GET %s: keeps changing", path)
	return answer{}
}

func pretty(path string) string {
	if strings.Contains(path, "?") {
		return path + "&pretty=true"
	}
	return path + "?pretty=true"
}

// differ compares the responses, ignoring the indentation of the second.
func differ(t *testing.T, plain, indented answer) error {
	t.Helper()
	if !bytes.HasPrefix(indented.body, []byte("{\n  ")) {
		return fmt.Errorf("pretty=true does not indent: %.100s", indented.body)
	}
	var want bytes.Buffer
	if err := json.Compact(&want, indented.body); err != nil {
		t.Fatalf("%v: %s", err, indented.body)
	}
	want.WriteByte('\n')
	if indented.code != http.StatusOK {
		// Errors are always indented.
		var compact bytes.Buffer
		if err := json.Compact(&compact, plain.body); err != nil {
			return fmt.Errorf("%w: %s", err, plain.body)
		}
		plain.body = append(compact.Bytes(), '\n')
	}
	if plain.code != indented.code || plain.header.Get("Content-Type") != indented.header.Get("Content-Type") {
		return fmt.Errorf("%d of %q, want %d of %q", plain.code, plain.header.Get("Content-Type"), indented.code, indented.header.Get("Content-Type"))
	}
	if bytes.Equal(plain.body, want.Bytes()) { // the search for what is current takes long
		return nil
	}
	return firstDifference(current.ReplaceAll(plain.body, nil), current.ReplaceAll(want.Bytes(), nil))
}

// current matches what changes by itself: the server's current revision in errors, and ages in Tables.
var current = regexp.MustCompile(`, current: \d+|"(\d+[dhms])+"`)

// firstDifference returns where two texts differ first.
func firstDifference(got, want []byte) error {
	if bytes.Equal(got, want) {
		return nil
	}
	at := 0
	for at < len(got) && at < len(want) && got[at] == want[at] {
		at++
	}
	around := func(text []byte) []byte { return text[max(0, at-80):min(len(text), at+120)] }
	return fmt.Errorf("at byte %d the response is\n%q, want\n%q", at, around(got), around(want))
}
