package reads

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// gzipFrom is the size from which kube-apiserver compresses responses for clients that accept it.
const gzipFrom = 128 << 10

// testCompression reads objects and lists slightly smaller and larger than the limit for compression, over both protocols.
func testCompression(t *testing.T, c *cluster) {
	const space = "compression"
	if _, err := c.typed.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: space}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, size := range map[string]int{"small": 1 << 10, "below": gzipFrom - 2<<10, "above": gzipFrom + 2<<10, "huge": 900 << 10} {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"size": name}}, Data: map[string]string{"x": strings.Repeat("x", size)}}
		if _, err := c.typed.CoreV1().ConfigMaps(space).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	clients := map[string]*http.Client{"HTTP/2.0": c.client(t, true), "HTTP/1.1": c.client(t, false)}
	base := "/api/v1/namespaces/" + space + "/configmaps"
	for protocol, client := range clients {
		for _, path := range []string{
			base, base + "/small", base + "/below", base + "/above", base + "/huge",
			base + "?labelSelector=size=small", base + "?labelSelector=size=below", base + "?labelSelector=size=above", base + "?labelSelector=size=none",
			"/api/v1/namespaces/many/configmaps", "/api/v1/namespaces/many/configmaps?limit=20", "/api/v1/configmaps",
		} {
			var problem error
			for range 20 { // controllers may write meanwhile
				before := c.get(t, client, path).version(t)
				if problem = compressed(t, c, client, path); problem == nil || c.get(t, client, path).version(t) == before {
					break
				}
			}
			if problem != nil {
				t.Errorf("GET %s over %s: %v", path, protocol, problem)
			}
		}
	}
}

// compressed expects gzip if the response is large and gzip is accepted, and always the same content.
func compressed(t *testing.T, c *cluster, client *http.Client, path string) error {
	t.Helper()
	plain, zipped := c.get(t, client, path), c.get(t, client, path, "Accept-Encoding", "gzip")
	if err := differ(t, plain, c.get(t, client, pretty(path))); err != nil {
		return err
	}
	if encoding := plain.header.Get("Content-Encoding"); encoding != "" {
		return fmt.Errorf("encoded as %q without Accept-Encoding", encoding)
	}
	large := len(plain.body) > gzipFrom
	switch encoding := zipped.header.Get("Content-Encoding"); {
	case !large && encoding != "":
		return fmt.Errorf("%d bytes encoded as %q", len(plain.body), encoding)
	case !large:
		return firstDifference(zipped.body, plain.body)
	case encoding != "gzip":
		return fmt.Errorf("%d bytes are not compressed", len(plain.body))
	}
	reader, err := gzip.NewReader(bytes.NewReader(zipped.body))
	if err != nil {
		return err
	}
	text, err := io.ReadAll(reader)
	if err != nil {
		return err
	}
	return firstDifference(text, plain.body)
}
