package serve

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// What is listed, and how much the process may grow meanwhile: by the cached protobuf of the objects, once, and by little else,
// since GOMEMLIMIT keeps garbage small. If each list were in memory as a whole, it would grow by much more.
const (
	largeObjects     = 40
	largeSize        = 900 << 10
	largeGrowth      = 192 << 20
	largeMemoryLimit = "200MiB"
)

// TestLargeLists lists many large objects, several times at once: each list is complete, and the process needs memory only for
// the part being sent. A list whose revision is compacted meanwhile breaks off.
func TestLargeLists(t *testing.T) {
	t.Parallel()
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		s := serve(t, []string{"--datastore", engine.Datastore}, env("GOMEMLIMIT="+largeMemoryLimit))
		createLarge(t, s)
		config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
		harness.Must(t, err)
		forms := []struct{ name, accept, encoding string }{
			{"JSON", "application/json", "identity"},
			{"compressed JSON", "application/json", "gzip"},
			{"protobuf", "application/vnd.kubernetes.protobuf", "identity"},
			{"Table", "application/json;as=Table;v=v1;g=meta.k8s.io", "identity"},
			{"metadata", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "identity"},
		}
		if engine.Name == "postgres" {
			forms = forms[:1] // what the engines read is encoded in the same way
		}
		for _, form := range forms {
			t.Run(form.name, func(t *testing.T) {
				before := s.ResetPeak(t)
				var lists sync.WaitGroup
				for range 4 {
					lists.Go(func() {
						client, err := rest.HTTPClientFor(rest.CopyConfig(config))
						if err != nil {
							t.Error(err)
							return
						}
						if err := readLarge(client, s.URL+"/api/v1/namespaces/default/configmaps", form.accept, form.encoding); err != nil {
							t.Error(err)
						}
					})
				}
				lists.Wait()
				growth := s.Memory(t, "VmHWM") - before
				if growth > largeGrowth {
					t.Errorf("the process has grown by %d MiB from %d MiB", growth>>20, before>>20)
				}
			})
		}
		if engine.Name == "sqlite" { // which changes are read, and how, does not depend on the engine
			t.Run("changes", func(t *testing.T) { listsManyChanges(t, s) })
		}
		s.Stop(t)
		outlivesRevision(t, serveAgain(t, s, []string{"--datastore", engine.Datastore, "--retention", "1s", "--compact-interval", "100ms", "--history=0"}))
	})
}

// createLarge creates the objects, with compressible text.
func createLarge(t *testing.T, s *sqube.Server) {
	c := client(t, s.Kubeconfig)
	text := strings.Repeat("all that is in a large object, \"quoted\", ", largeSize/40)[:largeSize]
	turns := make(chan struct{}, 8)
	var writers sync.WaitGroup
	for i := range largeObjects {
		turns <- struct{}{}
		writers.Go(func() {
			defer func() { <-turns }()
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("large-%03d", i)}, Data: map[string]string{"text": text}}
			if _, err := c.CoreV1().ConfigMaps("default").Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// listsManyChanges changes the objects: a list of all these changes is refused, whether it would show them or not, and its pages have all.
func listsManyChanges(t *testing.T, s *sqube.Server) {
	maps, changes := client(t, s.Kubeconfig).CoreV1().ConfigMaps("default"), changesIn(t, s.Kubeconfig, "default")
	for i := range largeObjects {
		_, err := maps.Patch(t.Context(), fmt.Sprintf("large-%03d", i), types.MergePatchType, []byte(`{"data":{"color":"red"}}`), metav1.PatchOptions{})
		harness.Must(t, err)
	}
	for _, selector := range []string{"operation=update", "field=.data.none"} {
		if _, err := changes.List(t.Context(), metav1.ListOptions{FieldSelector: selector}); !apierrors.IsRequestEntityTooLargeError(err) {
			t.Errorf("a list of the changes with %s returns %v", selector, err)
		}
	}
	updates := 0
	options := metav1.ListOptions{FieldSelector: "resource=configmaps,field=.data.color", Limit: largeObjects / 3}
	for more := true; more; more = options.Continue != "" {
		page, err := changes.List(t.Context(), options)
		harness.Must(t, err)
		updates, options.Continue = updates+len(page.Items), page.GetContinue()
	}
	if updates != largeObjects {
		t.Errorf("pages have %d updates of %d objects", updates, largeObjects)
	}
}

// readLarge streams a list, and expects all objects.
func readLarge(client *http.Client, url, accept, encoding string) error {
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", accept)
	request.Header.Set("Accept-Encoding", encoding)
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body := io.Reader(response.Body)
	if response.Header.Get("Content-Encoding") == "gzip" {
		if body, err = gzip.NewReader(body); err != nil {
			return err
		}
	}
	counted := &occurrences{text: []byte("large-")}
	n, err := io.Copy(counted, body)
	if err == nil && (response.StatusCode != http.StatusOK || counted.n < largeObjects) {
		err = fmt.Errorf("%s: %d of %d objects in %d bytes", response.Status, counted.n, largeObjects, n)
	}
	return err
}

// occurrences counts how often a text is written.
type occurrences struct {
	text, rest []byte
	n          int
}

// Write implements io.Writer.
func (o *occurrences) Write(p []byte) (int, error) {
	border := append(o.rest, p[:min(len(p), len(o.text)-1)]...)
	o.n += bytes.Count(border, o.text) + bytes.Count(p, o.text)
	o.rest = append(o.rest[:0], p[max(0, len(p)-len(o.text)+1):]...)
	return len(p), nil
}

// outlivesRevision pauses in the middle of reading a list until its revision is compacted: the list breaks off, and does not end
// as if it were complete.
func outlivesRevision(t *testing.T, s *sqube.Server) {
	c := client(t, s.Kubeconfig)
	maps := c.CoreV1().ConfigMaps("default")
	clients := map[string]*http.Client{"HTTP/2.0": httpClient(t, s.Kubeconfig, "HTTP/2.0"), "HTTP/1.1": httpClient(t, s.Kubeconfig, "HTTP/1.1")}
	lists := map[string]*http.Response{}
	for protocol, client := range clients {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/api/v1/namespaces/default/configmaps", nil)
		harness.Must(t, err)
		request.Header.Set("Accept-Encoding", "identity") // compressed, all of it would be sent at once
		response, err := client.Do(request)
		harness.Must(t, err)
		defer response.Body.Close()
		if _, err := io.ReadFull(response.Body, make([]byte, 1)); err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s, %v", protocol, response.Status, err)
		}
		lists[protocol] = response
	}
	// The last change is after the lists.
	changed, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "changes"}}, metav1.CreateOptions{})
	if err == nil {
		changed.Data = map[string]string{"a": "b"}
		changed, err = maps.Update(t.Context(), changed, metav1.UpdateOptions{})
	}
	harness.Must(t, err)
	awaitForgotten(t, s, changed.ResourceVersion)
	for protocol, response := range lists {
		if n, err := io.Copy(io.Discard, response.Body); err == nil {
			t.Errorf("%s: the list ends after %d bytes as if it were complete", protocol, n)
		}
	}
}
