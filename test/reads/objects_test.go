package reads

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/util/cert"

	"github.com/sqube/sqube/test/harness"
)

const namespace = "default"

// createObjects creates the objects in testdata, each with the richest possible metadata.
func createObjects(t *testing.T, c *cluster) {
	t.Helper()
	groups, err := restmapper.GetAPIGroupResources(c.typed.Discovery())
	harness.Must(t, err)
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	owner, err := c.typed.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
	harness.Must(t, err)
	for _, object := range manifests(t) {
		enrich(object, owner.UID)
		mapping, err := mapper.RESTMapping(object.GroupVersionKind().GroupKind(), object.GroupVersionKind().Version)
		harness.Must(t, err)
		var client dynamic.ResourceInterface = c.dynamic.Resource(mapping.Resource)
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			client = c.dynamic.Resource(mapping.Resource).Namespace(namespace)
		}
		create(t, client, object)
	}
}

// create creates the object and, unless its name can't be changed, one with a generated name, which has no managedFields and is
// being deleted.
func create(t *testing.T, client dynamic.ResourceInterface, object *unstructured.Unstructured) {
	t.Helper()
	generated := object.DeepCopy()
	fixed := object.GetName() != ""
	if !fixed {
		object.SetName("rich")
	}
	made, err := client.Create(t.Context(), object, metav1.CreateOptions{FieldManager: "reads <&> test"})
	if err != nil {
		t.Errorf("create %s: %v", object.GetKind(), err)
		return
	}
	madeAsRead(t, client, made)
	if fixed {
		return
	}
	generated.SetGenerateName("generated-")
	if made, err = client.Create(t.Context(), generated, metav1.CreateOptions{}); err != nil {
		t.Errorf("creating %s with a generated name: %v", object.GetKind(), err)
		return
	}
	madeAsRead(t, client, made)
	name := made.GetName()
	if _, err := client.Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"managedFields":[{}]}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("clearing the managedFields of %s: %v", object.GetKind(), err)
	}
	if err := client.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Errorf("delete %s: %v", object.GetKind(), err)
	}
}

// enrich adds metadata that would break careless copying of bytes.
func enrich(object *unstructured.Unstructured, owner types.UID) {
	object.SetLabels(map[string]string{
		"app": "rich", "app.kubernetes.io/name": "a_b.c-D", "empty": "", "uid": "not-the-uid", "resourceVersion": "1", "Z": "z", "a": "1",
	})
	object.SetAnnotations(map[string]string{
		"markup":    `<b class="x">&amp;</b> 'single' > "double"`,
		"json":      `{"metadata":{"name":"x","uid":"y","resourceVersion":"1"},"items":[]}`,
		"splice":    `","uid":"fake","resourceVersion":"7`,
		"braces":    `}}]}{"`,
		"control":   "tab\t newline\n return\r nul\u0001 del\u007f backslash\\ slash/",
		"unicode":   "é ü 日本語 🎉 \u2028\u2029 \ufeff \ufffd e\u0301",
		"empty":     "",
		"number":    "1e400",
		"Uid":       "",
		"uid":       "",
		"long":      strings.Repeat("0123456789", 200),
		"a.b/c-d_e": "x",
	})
	object.SetFinalizers([]string{"reads.example.com/hold"})
	object.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: namespace, UID: owner, BlockOwnerDeletion: new(false), Controller: new(false)}})
}

// manifests reads testdata/objects.yaml.
func manifests(t *testing.T) (objects []*unstructured.Unstructured) {
	t.Helper()
	text, err := os.ReadFile("testdata/objects.yaml")
	harness.Must(t, err)
	request, certificate := certificates(t)
	filled := strings.NewReplacer("CERTIFICATE", string(certificate), "REQUEST", string(request)).Replace(string(text))
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(filled), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			return objects
		} else if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, object)
	}
}

// certificates returns a certificate request and an authority, as encoded in manifests.
func certificates(t *testing.T) (request, authority []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	harness.Must(t, err)
	asked, err := cert.MakeCSR(key, &pkix.Name{CommonName: "reads"}, nil, nil)
	harness.Must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "reads"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	harness.Must(t, err)
	if authority, err = json.Marshal(string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))); err != nil {
		t.Fatal(err)
	}
	return []byte(base64.StdEncoding.EncodeToString(asked)), authority
}
