package lists

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/test/concepts/kit"
)

// largeEnough is the size from which a response is compressed.
const largeEnough = 128 << 10

var compression = []kit.Promise{
	{Statement: "responses of more than 128 KiB are compressed for a client that accepts gzip, and smaller ones are not", Proof: func(t *testing.T, c *kit.Cluster) {
		raw := uncompressing(t, c)
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("large", map[string]string{"x": strings.Repeat("x", largeEnough)})).Created(t)
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("small", map[string]string{"x": strings.Repeat("x", largeEnough-2<<10)})).Created(t)
		list := c.Path("v1", "configmaps") + "?resourceVersionMatch=Exact&resourceVersion=" + c.Get(t, c.Path("v1", "configmaps")).ResourceVersion(t)
		for path, compressed := range map[string]bool{
			c.Path("v1", "configmaps", "large"): true, c.Path("v1", "configmaps", "small"): false, c.Path("v1", "configmaps", "none"): false,
			list: true, list + "&fieldSelector=metadata.name%3Dlarge": true, list + "&fieldSelector=metadata.name%3Dsmall": false,
		} {
			for _, accept := range []string{"application/json", "application/yaml", "application/vnd.kubernetes.protobuf"} {
				plain := raw.Send(t, http.MethodGet, path, kit.Header{"Accept", accept}, nil)
				zipped := raw.Send(t, http.MethodGet, path, kit.Header{"Accept", accept, "Accept-Encoding", "gzip"}, nil)
				if plain.Header.Get("Content-Encoding") != "" {
					t.Errorf("%s is compressed without Accept-Encoding", path)
				}
				body := zipped.Body
				if (zipped.Header.Get("Content-Encoding") == "gzip") != compressed {
					t.Errorf("%s as %s: the encoding is %q", path, accept, zipped.Header.Get("Content-Encoding"))
				} else if compressed {
					body = unzip(t, zipped)
				}
				if !bytes.Equal(body, plain.Body) || zipped.Header.Get("Content-Type") != plain.Header.Get("Content-Type") {
					t.Errorf("%s as %s: the response with gzip differs", path, accept)
				}
			}
		}
	}},
	{Statement: "gzip must be in Accept-Encoding, alone or with others", Proof: func(t *testing.T, c *kit.Cluster) {
		raw := uncompressing(t, c)
		path := c.Path("v1", "configmaps", "large")
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("large", map[string]string{"x": strings.Repeat("x", largeEnough)})).Created(t)
		// Weights are not supported: kube-apiserver only looks for the name.
		for accept, want := range map[string]string{
			"gzip": "gzip", "deflate, gzip": "gzip", "gzip, deflate, br": "gzip", "br , gzip , identity": "gzip", "": "", "identity": "", "deflate": "", "br": "", "*": "", "gzip;q=1.0": "", "x-gzip": "",
		} {
			a := raw.Send(t, http.MethodGet, path, kit.Header{"Accept-Encoding", accept}, nil).OK(t)
			if got := a.Header.Get("Content-Encoding"); got != want {
				t.Errorf("%q gets %q instead of %q", accept, got, want)
			}
			if vary := a.Header.Values("Vary"); want != "" && !strings.Contains(strings.Join(vary, ","), "Accept-Encoding") {
				t.Errorf("%q: Vary is %q", accept, vary)
			}
		}
	}},
	// The documentation mentions only get and list.
	{Statement: "responses to writes are compressed too", Proof: func(t *testing.T, c *kit.Cluster) {
		created := uncompressing(t, c).Send(t, http.MethodPost, c.Path("v1", "configmaps"), kit.Header{"Accept-Encoding", "gzip"},
			kit.ConfigMap("large", map[string]string{"x": strings.Repeat("x", largeEnough)})).Created(t)
		if encoding := created.Header.Get("Content-Encoding"); encoding != "gzip" || len(unzip(t, created)) < largeEnough {
			t.Errorf("the created object is encoded as %q", encoding)
		}
	}},
	{Statement: "a streaming list is compressed, and so are the events that follow, each of which arrives at once", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, kit.AnySchema)
		for path, object := range map[string]map[string]any{
			c.Path("v1", "configmaps"): kit.ConfigMap("a", nil), c.Path(groupVersion, "widgets"): kit.Widget(groupVersion, "a"),
		} {
			c.Post(t, path, object).Created(t)
			query := path + "?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&fieldSelector=metadata.name%3Da"
			response := uncompressing(t, c).Open(t, http.MethodGet, query, kit.Header{"Accept-Encoding", "gzip"}, nil)
			defer response.Body.Close()
			kit.Equal(t, []string{response.Header.Get("Content-Encoding"), response.Header.Get("Vary")}, []string{"gzip", "Accept-Encoding"})
			events := kit.Must(gzip.NewReader(response.Body))(t)
			stream := &kit.Stream{Request: query, Decoder: json.NewDecoder(events)}
			kit.Equal(t, []string{stream.Next(t).Type, stream.Next(t).Type}, []string{"ADDED", "BOOKMARK"})
			for i := range 3 {
				changed := c.Patch(t, kit.MergePatch, path+"/a", fmt.Sprintf(`{"metadata":{"labels":{"l":"%d"}}}`, i)).OK(t)
				for e := stream.Next(t); ; e = stream.Next(t) {
					if e.Type == "MODIFIED" {
						kit.Equal(t, e.ResourceVersion(), changed.ResourceVersion(t))
						break
					}
				}
			}
		}
	}},
}

// With the gate disabled nothing is compressed.
func TestCompressionOff(t *testing.T) {
	kit.Prove(t, []string{"--feature-gates=APIResponseCompression=false"},
		kit.Promise{Statement: "without the gate APIResponseCompression no response is compressed", Proof: func(t *testing.T, c *kit.Cluster) {
			c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("large", map[string]string{"x": strings.Repeat("x", largeEnough)})).Created(t)
			for _, path := range []string{c.Path("v1", "configmaps", "large"), c.Path("v1", "configmaps")} {
				a := uncompressing(t, c).Send(t, http.MethodGet, path, kit.Header{"Accept-Encoding", "gzip"}, nil).OK(t)
				if encoding := a.Header.Get("Content-Encoding"); encoding != "" || len(a.Body) < largeEnough {
					t.Errorf("%s: %d bytes encoded as %q", path, len(a.Body), encoding)
				}
			}
		}},
	)
}

// uncompressing returns the administrator's client with a transport that neither requests compression nor decompresses.
func uncompressing(t testing.TB, c *kit.Cluster) *kit.Client {
	t.Helper()
	config := rest.CopyConfig(c.Config)
	config.DisableCompression = true
	return kit.NewClient(t, config)
}

func unzip(t testing.TB, a kit.Answer) []byte {
	t.Helper()
	reader, err := gzip.NewReader(bytes.NewReader(a.Body))
	if err != nil {
		t.Fatalf("%s: %v", a.Request, err)
	}
	body, err := io.ReadAll(reader)
	if err != nil {
		t.Fatalf("%s: %v", a.Request, err)
	}
	return body
}
