package join

import (
	"testing"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// TestNoContext reads a kubeconfig without a context, such as the one in the ConfigMap cluster-info.
func TestNoContext(t *testing.T) {
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters[""] = &clientcmdapi.Cluster{Server: "https://192.0.2.1:6443", CertificateAuthorityData: []byte("CA")}
	if _, err := ReadCluster(t.Context(), nil, kubeconfig, ""); err == nil {
		t.Error("a cluster was read")
	}
}
