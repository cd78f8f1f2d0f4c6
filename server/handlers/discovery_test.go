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
	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
)

const aggregatedV2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// upstreamDiscovery reads a discovery document of a kube-apiserver of the version this server is built from, which its
// module carries.
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

// read gets a document from the API under test.
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

// stableOnly drops what kube-apiserver doesn't serve by default from its recorded documents, for which everything was on.
func stableOnly(group metav1.APIGroup) (metav1.APIGroup, bool) {
	var stable []metav1.GroupVersionForDiscovery
	for _, version := range group.Versions {
		if !strings.Contains(version.Version, "alpha") && !strings.Contains(version.Version, "beta") {
			stable = append(stable, version)
		}
	}
	if len(stable) == 0 {
		return metav1.APIGroup{}, false
	}
	group.Versions, group.PreferredVersion = stable, stable[0]
	return group, true
}

func TestDiscoveryIsUpstreams(t *testing.T) {
	api := newAPI(t, options{})

	t.Run("/api", func(t *testing.T) {
		var ours, upstream map[string]any
		read(t, api, "/api", &ours)
		upstreamDiscovery(t, "api.json", &upstream)
		if diff := cmp.Diff(upstream, ours); diff != "" {
			t.Error(diff)
		}
	})

	var all, ours metav1.APIGroupList
	upstreamDiscovery(t, "apis.json", &all)
	upstream := all
	upstream.Groups = nil
	for _, group := range all.Groups {
		if group, ok := stableOnly(group); ok {
			upstream.Groups = append(upstream.Groups, group)
		}
	}
	t.Run("/apis", func(t *testing.T) {
		read(t, api, "/apis", &ours)
		if diff := cmp.Diff(upstream, ours); diff != "" {
			t.Error(diff)
		}
	})

	compareVersion(t, api, "/api/v1", "api__v1.json")
	for _, group := range upstream.Groups {
		t.Run(group.Name, func(t *testing.T) {
			var ours metav1.APIGroup
			read(t, api, "/apis/"+group.Name, &ours)
			group.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
			if diff := cmp.Diff(group, ours); diff != "" {
				t.Error(diff)
			}
			for _, version := range group.Versions {
				compareVersion(t, api, "/apis/"+version.GroupVersion, "apis__"+group.Name+"__"+version.Version+".json")
			}
		})
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

func TestAggregatedDiscoveryIsUpstreams(t *testing.T) {
	api := newAPI(t, options{})
	var all, ours apidiscovery.APIGroupDiscoveryList
	upstreamDiscovery(t, "aggregated_v2.json", &all)
	read(t, api, "/apis", &ours, "Accept", aggregatedV2)

	upstream := all
	upstream.Items = nil
	for _, group := range all.Items {
		stable := group
		stable.Versions = nil
		for _, version := range group.Versions {
			if !strings.Contains(version.Version, "alpha") && !strings.Contains(version.Version, "beta") {
				stable.Versions = append(stable.Versions, version)
			}
		}
		if len(stable.Versions) > 0 {
			upstream.Items = append(upstream.Items, stable)
		}
	}
	if diff := cmp.Diff(upstream, ours); diff != "" {
		t.Error(diff)
	}

	var legacy apidiscovery.APIGroupDiscoveryList
	read(t, api, "/api", &legacy, "Accept", aggregatedV2)
	if len(legacy.Items) != 1 || legacy.Items[0].Name != "" || len(legacy.Items[0].Versions) != 1 {
		t.Errorf("/api holds %v", legacy.Items)
	}
}

// TestDiscoveryOfEverythingIsUpstreams compares all of the recorded documents, which were made with every version and
// every feature on.
func TestDiscoveryOfEverythingIsUpstreams(t *testing.T) {
	featuregatetesting.SetFeatureGatesDuringTest(t, utilfeature.DefaultFeatureGate, featuregatetesting.FeatureOverrides{
		"AllAlpha": true,
		"AllBeta":  true,
	})
	api := newAPI(t, options{runtimeConfig: map[string]string{"api/all": "true"}})
	var upstream, ours metav1.APIGroupList
	upstreamDiscovery(t, "apis.json", &upstream)
	read(t, api, "/apis", &ours)
	if diff := cmp.Diff(upstream, ours); diff != "" {
		t.Error(diff)
	}
	for _, group := range upstream.Groups {
		for _, version := range group.Versions {
			compareVersion(t, api, "/apis/"+version.GroupVersion, "apis__"+group.Name+"__"+version.Version+".json")
		}
	}
	var upstreamAll, oursAll apidiscovery.APIGroupDiscoveryList
	upstreamDiscovery(t, "aggregated_v2.json", &upstreamAll)
	read(t, api, "/apis", &oursAll, "Accept", aggregatedV2)
	if diff := cmp.Diff(upstreamAll, oursAll); diff != "" {
		t.Error(diff)
	}
}
