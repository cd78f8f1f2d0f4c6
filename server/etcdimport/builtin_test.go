package etcdimport

import (
	"bytes"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/sqube/sqube/server/crd"
	"github.com/sqube/sqube/server/encryption"
	"github.com/sqube/sqube/test/harness"
)

// TestBuiltIn checks that custom resources are never stored in place of built-in ones.
func TestBuiltIn(t *testing.T) {
	keys, err := encryption.Load(encryption.Options{}, "")
	harness.Must(t, err)
	resources, err := builtIn(keys)
	harness.Must(t, err)
	for _, r := range resources {
		if !crd.BuiltIn(r.name) {
			t.Errorf("%s is not known to be built in", r.name)
		}
	}
}

// TestRawJSON checks that JSON inside an object is imported as it is.
func TestRawJSON(t *testing.T) {
	keys, err := encryption.Load(encryption.Options{}, "")
	harness.Must(t, err)
	importer, err := New("/registry/", keys)
	harness.Must(t, err)
	const raw = "{ \"a\": \"<\" }\n"
	var stored bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(&appsv1.ControllerRevision{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "ControllerRevision"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}, Data: runtime.RawExtension{Raw: []byte(raw)},
	}, &stored); err != nil {
		t.Fatal(err)
	}
	result := importer.Import(t.Context(), "/registry/controllerrevisions/default/a", stored.Bytes())
	if result.Write == nil || !strings.Contains(string(result.Write.Value), `"data":`+raw) {
		t.Errorf("%+v", result)
	}
}
