package serve

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/everykind"
)

// TestEmulatedVersion makes a server emulate Kubernetes 1.36, which has no storagemigration.k8s.io/v1, although a flag enables it.
func TestEmulatedVersion(t *testing.T) {
	t.Parallel()
	dataDir := filepath.Join(t.TempDir(), "data")
	older := []string{"--emulated-version=1.36", "--runtime-config=storagemigration.k8s.io/v1=true", "--feature-gates=kube:StorageVersionMigrator=true"}
	refusesAfterWarnings(t, "--runtime-config-emulation-forward-compatible=true", serveArgs(t, dataDir, older...))

	s := serveIn(t, dataDir, append(older, "--runtime-config-emulation-forward-compatible"))
	c := client(t, s.Kubeconfig).Discovery()
	version, err := c.ServerVersion()
	harness.Must(t, err)
	if version.Minor != "37" || version.EmulationMajor+"."+version.EmulationMinor != "1.36" || version.MinCompatibilityMinor != "35" {
		t.Errorf("the version: %+v", version)
	}
	served := func(groupVersion, resource string) bool {
		found, err := c.ServerResourcesForGroupVersion(groupVersion)
		harness.Must(t, err)
		for _, r := range found.APIResources {
			if r.Name == resource {
				return true
			}
		}
		return false
	}
	if served("certificates.k8s.io/v1", "clustertrustbundles") {
		t.Error("an API that the version lacks is served")
	}
	if !served("storagemigration.k8s.io/v1", "storageversionmigrations") {
		t.Error("an API that --runtime-config names is not served")
	}
	settle(t, s)
	s.Stop(t)

	// The newer version serves what the older one has written, and its new APIs.
	s = serveIn(t, dataDir, []string{"--kubernetes-service-node-port=30555"})
	c = client(t, s.Kubeconfig).Discovery()
	if !served("certificates.k8s.io/v1", "clustertrustbundles") {
		t.Error("without the flag an API is not served")
	}
	if service, err := client(t, s.Kubeconfig).CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{}); err != nil || service.Spec.Ports[0].NodePort != 30555 {
		t.Errorf("the existing Service kubernetes gets no node port: %+v, error %v", service.Spec, err)
	}
	if maps, err := client(t, s.Kubeconfig).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}); err != nil || len(maps.Items) == 0 {
		t.Errorf("what was written before is gone: %v", err)
	}
}

// TestEmulatedVersionOffers compares the resources and gates of a server that emulates an older version with those of the last sqube with
// that version: see record.
func TestEmulatedVersionOffers(t *testing.T) {
	t.Parallel()
	var want everykind.Offer
	harness.Must(t, json.Unmarshal(harness.ReadGzip(t, "testdata/sqube-1.36.offer.json.gz"), &want))
	s := serve(t, []string{"--emulated-version=1.36"})
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
	harness.Must(t, err)
	f, err := everykind.New(config)
	harness.Must(t, err)
	got, err := f.Offer(t.Context())
	harness.Must(t, err)
	// Emulation covers versions and resources, but not subresources, as upstream, nor sqube's own group.
	got.Resources = slices.DeleteFunc(got.Resources, func(r string) bool {
		return strings.HasPrefix(r, "storage.k8s.io/v1 csinodes/status ") || strings.HasPrefix(r, "history.sqube.io/")
	})
	if diff := cmp.Diff(want.Resources, got.Resources); diff != "" {
		t.Errorf("1.36 serves (-), its emulation serves (+):\n%s", diff)
	}
	common := 0
	for gate, on := range got.Gates {
		before, known := want.Gates[gate]
		if known {
			common++
		}
		if on != before && gate != "KubeProxyIPVS" { // which 1.37 added to turn off what was always on
			t.Errorf("the gate %s is %t; in 1.36 it was %t (known: %t)", gate, on, before, known)
		}
	}
	if common < 200 {
		t.Errorf("the versions have only %d gates in common", common)
	}
	s.Stop(t)
}
