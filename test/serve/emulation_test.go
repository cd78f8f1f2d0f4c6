package serve

import (
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestEmulatedVersion has a server behave as Kubernetes 1.33 did, in which resource.k8s.io/v1 was not, which a flag names all
// the same, and VolumeAttributesClasses were not in storage.k8s.io/v1.
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
		t.Error("an API that the version does not have is served")
	}
	if !served("resource.k8s.io/v1", "resourceclaims") {
		t.Error("an API that --runtime-config names is not served")
	}
	s.settle(t)
	s.terminate(t)

	// What the older version has written the newer one serves, and has what is new.
	s = serveAt(t, dataDir, freePort(t), []string{"--kubernetes-service-node-port=30555"})
	c = client(t, s.kubeconfig()).Discovery()
	if !served("storage.k8s.io/v1", "volumeattributesclasses") {
		t.Error("without the flag an API is not served")
	}
	if service, err := client(t, s.kubeconfig()).CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{}); err != nil || service.Spec.Ports[0].NodePort != 30555 {
		t.Errorf("the Service kubernetes, which was there before, gets no node port: %+v, error %v", service.Spec, err)
	}
	if maps, err := client(t, s.kubeconfig()).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}); err != nil || len(maps.Items) == 0 {
		t.Errorf("what was written before is gone: %v", err)
	}
}
