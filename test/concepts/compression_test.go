package concepts

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// largeEnough is from which size of a response it is compressed.
const largeEnough = 128 << 10

var compression = []promise{
	{"responses of more than 128 KiB are compressed for a client that takes gzip, and smaller ones are not", func(t *testing.T, c *cluster) {
		raw := c.uncompressing(t)
		c.post(t, c.path("v1", "configmaps"), configMap("large", map[string]string{"x": strings.Repeat("x", largeEnough)})).want(t, http.StatusCreated)
		c.post(t, c.path("v1", "configmaps"), configMap("small", map[string]string{"x": strings.Repeat("x", largeEnough-2<<10)})).want(t, http.StatusCreated)
		list := c.path("v1", "configmaps") + "?resourceVersionMatch=Exact&resourceVersion=" + c.get(t, c.path("v1", "configmaps")).version(t)
		for path, compressed := range map[string]bool{
			c.path("v1", "configmaps", "large"): true, c.path("v1", "configmaps", "small"): false, c.path("v1", "configmaps", "none"): false,
			list: true, list + "&fieldSelector=metadata.name%3Dlarge": true, list + "&fieldSelector=metadata.name%3Dsmall": false,
		} {
			for _, accept := range []string{"application/json", "application/yaml", "application/vnd.kubernetes.protobuf"} {
				plain := raw.send(t, http.MethodGet, path, header{"Accept", accept}, nil)
				zipped := raw.send(t, http.MethodGet, path, header{"Accept", accept, "Accept-Encoding", "gzip"}, nil)
				if plain.Header.Get("Content-Encoding") != "" {
					t.Errorf("%s is compressed without being asked", path)
				}
				body := zipped.Body
				if (zipped.Header.Get("Content-Encoding") == "gzip") != compressed {
					t.Errorf("%s as %s: the encoding is %q", path, accept, zipped.Header.Get("Content-Encoding"))
				} else if compressed {
					body = unzip(t, zipped)
				}
				if !bytes.Equal(body, plain.Body) || zipped.Header.Get("Content-Type") != plain.Header.Get("Content-Type") {
					t.Errorf("%s as %s: with gzip it is another answer", path, accept)
				}
			}
		}
	}},
	{"gzip has to be named in Accept-Encoding, alone or with others", func(t *testing.T, c *cluster) {
		raw := c.uncompressing(t)
		path := c.path("v1", "configmaps", "large")
		c.post(t, c.path("v1", "configmaps"), configMap("large", map[string]string{"x": strings.Repeat("x", largeEnough)})).want(t, http.StatusCreated)
		// A weight is not understood: kube-apiserver looks for the name alone.
		for accept, want := range map[string]string{
			"gzip": "gzip", "deflate, gzip": "gzip", "gzip, deflate, br": "gzip", "br , gzip , identity": "gzip", "": "", "identity": "", "deflate": "", "br": "", "*": "", "gzip;q=1.0": "", "x-gzip": "",
		} {
			a := raw.send(t, http.MethodGet, path, header{"Accept-Encoding", accept}, nil).want(t, http.StatusOK)
			if got := a.Header.Get("Content-Encoding"); got != want {
				t.Errorf("%q gets %q instead of %q", accept, got, want)
			}
			if vary := a.Header.Values("Vary"); want != "" && !strings.Contains(strings.Join(vary, ","), "Accept-Encoding") {
				t.Errorf("%q: Vary is %q", accept, vary)
			}
		}
	}},
	// The documents say that of get and list only.
	{"answers to writes are compressed too, and a watch is not", func(t *testing.T, c *cluster) {
		raw := c.uncompressing(t)
		gzipped := header{"Accept-Encoding", "gzip"}
		created := raw.send(t, http.MethodPost, c.path("v1", "configmaps"), gzipped, configMap("large", map[string]string{"x": strings.Repeat("x", largeEnough)})).want(t, http.StatusCreated)
		watch := raw.send(t, http.MethodGet, c.path("v1", "configmaps")+"?watch=true&timeoutSeconds=3&resourceVersion=0", gzipped, nil).want(t, http.StatusOK)
		if encoding := watch.Header.Get("Content-Encoding"); encoding != "" || len(watch.Body) < largeEnough {
			t.Errorf("a watch of %d bytes is encoded as %q", len(watch.Body), encoding)
		}
		if encoding := created.Header.Get("Content-Encoding"); encoding != "gzip" || len(unzip(t, created)) < largeEnough {
			t.Errorf("what was created comes encoded as %q", encoding)
		}
	}},
}

// With the gate closed nothing is compressed.
func TestCompressionOff(t *testing.T) {
	prove(t, []string{"--feature-gates=APIResponseCompression=false"},
		promise{"without the gate APIResponseCompression no response is compressed", func(t *testing.T, c *cluster) {
			c.post(t, c.path("v1", "configmaps"), configMap("large", map[string]string{"x": strings.Repeat("x", largeEnough)})).want(t, http.StatusCreated)
			for _, path := range []string{c.path("v1", "configmaps", "large"), c.path("v1", "configmaps")} {
				a := c.uncompressing(t).send(t, http.MethodGet, path, header{"Accept-Encoding", "gzip"}, nil).want(t, http.StatusOK)
				if encoding := a.Header.Get("Content-Encoding"); encoding != "" || len(a.Body) < largeEnough {
					t.Errorf("%s: %d bytes encoded as %q", path, len(a.Body), encoding)
				}
			}
		}},
	)
}

// uncompressing is the administrator with a transport that neither asks for compression nor undoes it.
func (c *cluster) uncompressing(t testing.TB) *client {
	t.Helper()
	config := rest.CopyConfig(c.config)
	config.DisableCompression = true
	return newClient(t, config)
}

func unzip(t testing.TB, a answer) []byte {
	t.Helper()
	reader, err := gzip.NewReader(bytes.NewReader(a.Body))
	if err != nil {
		t.Fatalf("%s: %v", a.request, err)
	}
	body, err := io.ReadAll(reader)
	if err != nil {
		t.Fatalf("%s: %v", a.request, err)
	}
	return body
}
