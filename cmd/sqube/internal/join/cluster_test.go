package join

import (
	"testing"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"
)

// TestNoContext reads a kubeconfig without a context, such as the one in the ConfigMap cluster-info.
func TestNoContext(t *testing.T) {
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters[""] = &clientcmdapi.Cluster{Server: "https://192.0.2.1:6443", CertificateAuthorityData: []byte("CA")}
	if _, err := ReadCluster(t.Context(), nil, kubeconfig, ""); err == nil {
		t.Error("a cluster was read")
	}
}

// TestEndpoint checks that the endpoint has a port even if the URL has none.
func TestEndpoint(t *testing.T) {
	for server, want := range map[string]string{
		"https://192.0.2.1:6443":      "192.0.2.1:6443",
		"https://api.example.com":     "api.example.com:443",
		"https://[2001:db8::1]/":      "[2001:db8::1]:443",
		"https://[2001:db8::1]:6443/": "[2001:db8::1]:6443",
		"192.0.2.1:6443":              "192.0.2.1:6443",
	} {
		if got := (&Cluster{Server: server}).Endpoint(); got != want {
			t.Errorf("that of %s is %s, want %s", server, got, want)
		}
	}
}

// TestConfigurationsOfIPv6 parses the configurations of a server with an IPv6 address, whose brackets would begin a list in YAML.
func TestConfigurationsOfIPv6(t *testing.T) {
	c := &Cluster{Server: "https://[2001:db8::1]:6443", Version: "v1.36.3", ServiceRange: "2001:db8:1::/112", DNS: "2001:db8:1::a"}
	for name, data := range c.configurations() {
		for key, text := range data {
			var parsed map[string]any
			if err := yaml.Unmarshal([]byte(text), &parsed); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if at := parsed["controlPlaneEndpoint"]; at != nil && at != c.Endpoint() {
				t.Errorf("%s: %s is at %v", name, key, at)
			}
		}
	}
}
