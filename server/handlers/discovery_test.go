package handlers_test

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
)

// upstreamDiscovery reads a discovery document from the module that this server is built from. It was recorded from a
// kube-apiserver of that version.
func upstreamDiscovery(t *testing.T, name string, into any) {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	if err != nil {
		t.Fatalf("finding the sources of Kubernetes: %v", err)
	}
	content, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "api", "discovery", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(content, into); err != nil {
		t.Fatal(err)
	}
}

// read gets a document from the tested API.
func read(t *testing.T, api http.Handler, path string, into any, headers ...string) {
	t.Helper()
	answer := do(t, api, http.MethodGet, path, headers...)
	if answer.Code != http.StatusOK {
		t.Fatalf("GET %s: %d %s", path, answer.Code, answer.Body)
	}
	if err := json.Unmarshal(answer.Body.Bytes(), into); err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
}

// TestDiscoveryOfVersionsIsUpstreams compares discovery with all of the recorded documents, which were made with every version
// and every feature enabled.
func TestDiscoveryOfVersionsIsUpstreams(t *testing.T) {
	featuregatetesting.SetFeatureGatesDuringTest(t, utilfeature.DefaultFeatureGate, featuregatetesting.FeatureOverrides{
		"AllAlpha": true,
		"AllBeta":  true,
	})
	api := newAPI(t, options{runtimeConfig: map[string]string{"api/all": "true"}})
	var ours, upstream map[string]any
	read(t, api, "/api", &ours)
	upstreamDiscovery(t, "api.json", &upstream)
	if diff := cmp.Diff(upstream, ours); diff != "" {
		t.Error(diff)
	}
	compareVersion(t, api, "/api/v1", "api__v1.json")
	var groups metav1.APIGroupList
	upstreamDiscovery(t, "apis.json", &groups)
	for _, group := range groups.Groups {
		for _, version := range group.Versions {
			compareVersion(t, api, "/apis/"+version.GroupVersion, "apis__"+group.Name+"__"+version.Version+".json")
		}
	}
}

// compareVersion compares the resource list of one version.
func compareVersion(t *testing.T, api http.Handler, path, document string) {
	t.Run(path, func(t *testing.T) {
		var ours, upstream metav1.APIResourceList
		read(t, api, path, &ours)
		upstreamDiscovery(t, document, &upstream)
		if diff := cmp.Diff(upstream, ours); diff != "" {
			t.Error(diff)
		}
	})
}
