package controlplane

import (
	"os"
	"os/exec"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	kubeletscheme "k8s.io/kubernetes/pkg/kubelet/apis/config/scheme"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/fakenode"
	"github.com/sqube/sqube/test/harness/sqube"
)

const board = "../../deploy/board/"

// TestBoard applies the files of deploy/board for one machine, as far as that can be tested without containers.
func TestBoard(t *testing.T) {
	t.Parallel()
	s := sqube.Start(t, sqube.Options{Datastore: harness.SQLite(t), Args: []string{"--config=" + board + "config.yaml"}})
	c := client(t, s)
	fakenode.Join(t, c, fakenode.Options{Name: "board"})
	kubectl := exec.Command(sqube.KubectlBinary(t), "apply", "--validate=strict", "-f", board+"kube-proxy.yaml", "-f", board+"coredns.yaml")
	kubectl.Env = sqube.KubectlEnv(t, s.Kubeconfig)
	if out, err := kubectl.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	harness.Eventually(t, "CoreDNS and kube-proxy run", func() bool {
		dns, err := c.AppsV1().Deployments(metav1.NamespaceSystem).Get(t.Context(), "coredns", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		proxy, err := c.AppsV1().DaemonSets(metav1.NamespaceSystem).Get(t.Context(), "kube-proxy", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return dns.Status.AvailableReplicas == 1 && proxy.Status.NumberAvailable == 1
	})
	service, err := c.CoreV1().Services(metav1.NamespaceSystem).Get(t.Context(), "kube-dns", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if kubelet := readKubelet(t); len(kubelet.ClusterDNS) != 1 || kubelet.ClusterDNS[0] != service.Spec.ClusterIP {
		t.Errorf("the kubelet's DNS is %v, but CoreDNS is at %s", kubelet.ClusterDNS, service.Spec.ClusterIP)
	}
	s.Stop(t)
}

// readKubelet reads the kubelet's configuration like the kubelet, and rejects unknown fields.
func readKubelet(t *testing.T) *kubeletconfig.KubeletConfiguration {
	t.Helper()
	text, err := os.ReadFile(board + "kubelet.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, codecs, err := kubeletscheme.NewSchemeAndCodecs(serializer.EnableStrict)
	if err != nil {
		t.Fatal(err)
	}
	object, _, err := codecs.UniversalDecoder().Decode(text, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return object.(*kubeletconfig.KubeletConfiguration)
}
