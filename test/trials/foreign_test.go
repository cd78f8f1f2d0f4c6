package trials

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sqube/sqube/server/servertest"
	"github.com/sqube/sqube/server/trial"
	"github.com/sqube/sqube/test/harness"
)

// foreign returns the kubeconfig of a cluster without the groups of sqube, so without transactions.
func foreign(t *testing.T, s *servertest.Server) string {
	t.Helper()
	transport, err := rest.TransportFor(s.Config)
	harness.Must(t, err)
	target, err := url.Parse(s.Config.Host)
	harness.Must(t, err)
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	served := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis" && r.URL.Path != "/api" {
			proxy.ServeHTTP(w, r)
			return
		}
		text, err := kubernetes.NewForConfigOrDie(s.Config).Discovery().RESTClient().Get().AbsPath(r.URL.Path).SetHeader("Accept", "application/json").DoRaw(r.Context())
		var groups metav1.APIGroupList
		if r.URL.Path == "/apis" && err == nil {
			if err = json.Unmarshal(text, &groups); err == nil {
				groups.Groups = slices.DeleteFunc(groups.Groups, func(g metav1.APIGroup) bool { return strings.HasSuffix(g.Name, ".sqube.io") })
				text, err = json.Marshal(&groups)
			}
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text)
	}))
	t.Cleanup(served.Close)
	config := clientcmdapi.NewConfig()
	config.Clusters["other"] = &clientcmdapi.Cluster{Server: served.URL}
	config.Contexts["other"] = &clientcmdapi.Context{Cluster: "other"}
	config.CurrentContext = "other"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	harness.Must(t, clientcmd.WriteToFile(*config, file))
	return file
}

const boats = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: boats, singular: boat, kind: Boat, listKind: BoatList}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
---
apiVersion: v1
kind: Namespace
metadata: {name: harbour}
---
apiVersion: example.com/v1
kind: Boat
metadata: {name: sloop, namespace: harbour}
spec: {masts: 1}
`

// TestForeignCluster applies what was tried to a cluster without transactions.
func TestForeignCluster(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, servertest.Options{})
	kubeconfig := foreign(t, s)
	masts := func() string {
		text, _ := kubernetes.NewForConfigOrDie(s.Config).Discovery().RESTClient().Get().AbsPath("/apis/example.com/v1/namespaces/harbour/boats/sloop").DoRaw(t.Context())
		var boat struct{ Spec struct{ Masts json.Number } }
		_ = json.Unmarshal(text, &boat) // it is an error, or there is a boat
		return boat.Spec.Masts.String()
	}
	file := write(t, boats)
	try(t, "--kubeconfig", kubeconfig, "-f", file).ends(t, trial.AtRest)
	if got := masts(); got != "" {
		t.Fatalf("after a trial, the boat has %s masts", got)
	}
	for _, want := range []string{"1", "2"} {
		file := write(t, strings.ReplaceAll(boats, "masts: 1", "masts: "+want))
		r := try(t, "--kubeconfig", kubeconfig, "--apply", "-f", file)
		if got := masts(); r.code != 0 || got != want || !strings.Contains(r.stderr, "Boat harbour/sloop serverside-applied") {
			t.Errorf("--apply ends with %d, and the boat has %s masts, want %s: %s", r.code, got, want, r.stderr)
		}
	}
}
