package kit

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// Kubectl runs the real kubectl in the promise's namespace, and returns its combined output, and whether it succeeded.
func (c *Cluster) Kubectl(t testing.TB, stdin string, args ...string) (output string, ok bool) {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: c.Config.Host, CertificateAuthority: c.Config.CAFile,
		CertificateAuthorityData: c.Config.CAData}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{
		ClientCertificate: c.Config.CertFile, ClientCertificateData: c.Config.CertData,
		ClientKey: c.Config.KeyFile, ClientKeyData: c.Config.KeyData, Token: c.Config.BearerToken,
	}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u", Namespace: c.Namespace}
	config.CurrentContext = "x"
	harness.Must(t, clientcmd.WriteToFile(*config, kubeconfig))
	command := exec.CommandContext(t.Context(), sqube.KubectlBinary(t), args...)
	command.Env = sqube.KubectlEnv(t, kubeconfig)
	command.Stdin = strings.NewReader(stdin)
	text, err := command.CombinedOutput()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		t.Fatal(err)
	}
	return string(text), err == nil
}

// MustKubectl runs kubectl, which must succeed, and returns its output.
func MustKubectl(t testing.TB, c *Cluster, args ...string) string {
	t.Helper()
	output, ok := c.Kubectl(t, "", args...)
	if !ok {
		t.Fatalf("kubectl %q: %s", args, output)
	}
	return output
}
