package serve

import (
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestEmulatedVersion makes a server emulate Kubernetes 1.33, which has no resource.k8s.io/v1, although a flag enables it, and
// no VolumeAttributesClasses in storage.k8s.io/v1.
func TestEmulatedVersion(t *testing.T) {
	t.Parallel()
	dataDir := filepath.Join(t.TempDir(), "data")
	older := []string{"--emulated-version=1.33", "--runtime-config=resource.k8s.io/v1=true", "--feature-gates=kube:CBORServingAndStorage=false"}
	refuses(t, "--runtime-config-emulation-forward-compatible=true", serveArgs(t, dataDir, older...))

	s := serveAt(t, dataDir, freePort(t), append(older, "--runtime-config-emulation-forward-compatible"))
	c := client(t, s.kubeconfig()).Discovery()
	version, err := c.ServerVersion()
	must(t, err)
	if version.Minor != "36" || version.EmulationMajor+"."+version.EmulationMinor != "1.33" || version.MinCompatibilityMinor != "33" {
		t.Errorf("the version: %+v", version)
	}
	served := func(groupVersion, resource string) bool {
		found, err := c.ServerResourcesForGroupVersion(groupVersion)
		must(t, err)
		for _, r := range found.APIResources {
			if r.Name == resource {
				return true
			}
		}
		return false
	}
	if served("storage.k8s.io/v1", "volumeattributesclasses") {
		t.Error("an API that the version lacks is served")
	}
	if !served("resource.k8s.io/v1", "resourceclaims") {
		t.Error("an API that --runtime-config names is not served")
	}
	s.settle(t)
	s.terminate(t)

	// The newer version serves what the older one has written, and its new APIs.
	s = serveAt(t, dataDir, freePort(t), []string{"--kubernetes-service-node-port=30555"})
	c = client(t, s.kubeconfig()).Discovery()
	if !served("storage.k8s.io/v1", "volumeattributesclasses") {
		t.Error("without the flag an API is not served")
	}
	if service, err := client(t, s.kubeconfig()).CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{}); err != nil || service.Spec.Ports[0].NodePort != 30555 {
		t.Errorf("the existing Service kubernetes gets no node port: %+v, error %v", service.Spec, err)
	}
	if maps, err := client(t, s.kubeconfig()).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}); err != nil || len(maps.Items) == 0 {
		t.Errorf("what was written before is gone: %v", err)
	}
}
