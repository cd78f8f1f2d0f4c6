package reads

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/sqube/sqube/test/harness"
)

// forms are the media types of responses, besides JSON.
var forms = map[string]string{
	"protobuf": "application/vnd.kubernetes.protobuf",
	"metadata": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
	"Table":    "application/json;as=Table;g=meta.k8s.io;v=v1",
}

// testAnswers writes an object in every way, and compares the responses with a get of the object.
func testAnswers(t *testing.T, c *cluster, path string) {
	t.Helper()
	merge, smart, apply := string(types.MergePatchType), string(types.StrategicMergePatchType), string(types.ApplyYAMLPatchType)
	whole := c.get(t, path)
	var object metav1.PartialObjectMetadata
	harness.Must(t, json.Unmarshal(whole.body, &object))
	n := 0
	label := func() []byte {
		n++
		return fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{"labels":{"answered":"%d"}}}`, object.APIVersion, object.Kind, n)
	}
	const json = "application/json"
	c.answered(t, http.MethodPut, path, json, json, whole.body) // changes nothing
	c.answered(t, http.MethodPatch, path, json, merge, label())
	c.answered(t, http.MethodPatch, path, json, merge, []byte("{}"))
	c.answered(t, http.MethodPatch, pretty(path), json, merge, label())
	c.answered(t, http.MethodPatch, path+"?fieldManager=answers&force=true", json, apply, label())
	for _, form := range forms {
		c.answered(t, http.MethodPatch, path, form, merge, label())
	}
	if object.GroupVersionKind().Group == "" {
		c.answered(t, http.MethodPatch, path, json, smart, label())
	}
	c.answered(t, http.MethodPut, path, json, json, bytes.Replace(c.get(t, path).body, []byte(`"answered":"`), []byte(`"answered":"put-`), 1))
}

// answered sends a write and reads the object, and fails the test if the responses differ.
func (c *cluster) answered(t *testing.T, method, path, accept, content string, body []byte) {
	t.Helper()
	for range 20 {
		request, err := http.NewRequestWithContext(t.Context(), method, c.config.Host+path, bytes.NewReader(body))
		harness.Must(t, err)
		request.Header.Set("Accept", accept)
		request.Header.Set("Content-Type", content)
		response, err := c.http.Do(request)
		harness.Must(t, err)
		written, err := io.ReadAll(response.Body)
		harness.Must(t, err)
		harness.Must(t, response.Body.Close())
		if response.StatusCode == http.StatusConflict {
			body = c.get(t, path).body
			continue
		}
		if response.StatusCode != http.StatusOK {
			t.Errorf("%s %s as %s returns %d: %.500s", method, path, accept, response.StatusCode, written)
			return
		}
		read := c.get(t, path, "Accept", accept)
		after := c.get(t, path).version(t)
		problem := firstDifference(current.ReplaceAll(written, nil), current.ReplaceAll(read.body, nil))
		if got, want := response.Header.Get("Content-Type"), read.header.Get("Content-Type"); problem == nil && got != want {
			problem = fmt.Errorf("it is %s, want %s", got, want)
		}
		if problem == nil {
			return
		}
		if bytes.Contains(written, []byte(after)) { // the object has not been written meanwhile
			t.Errorf("%s %s with %s as %s: compared with a get of the object, %v", method, path, content, accept, problem)
			return
		}
	}
	t.Errorf("%s %s: keeps changing", method, path)
}

// madeAsRead compares the response to a create with a get of the object.
func madeAsRead(t *testing.T, client dynamic.ResourceInterface, made *unstructured.Unstructured) {
	t.Helper()
	read, err := client.Get(t.Context(), made.GetName(), metav1.GetOptions{})
	harness.Must(t, err)
	if read.GetResourceVersion() != made.GetResourceVersion() {
		return // a controller was faster
	}
	got, err := made.MarshalJSON()
	harness.Must(t, err)
	want, err := read.MarshalJSON()
	harness.Must(t, err)
	if problem := firstDifference(got, want); problem != nil {
		t.Errorf("creating %s: compared with a get of the object, %v", made.GetKind(), problem)
	}
}
