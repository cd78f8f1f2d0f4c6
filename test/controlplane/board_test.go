package controlplane

import (
	"os"
	"os/exec"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/sqube/sqube/server/simnodes"
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
	fakenode.Join(t, s.Config(t), simnodes.Options{Names: []string{"board"}})
	kubectl := exec.Command(sqube.KubectlBinary(t), "apply", "--validate=strict", "-f", board+"cluster")
	kubectl.Env = sqube.KubectlEnv(t, s.Kubeconfig)
	if out, err := kubectl.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	harness.Eventually(t, "kube-proxy runs", func() bool {
		proxy, err := c.AppsV1().DaemonSets(metav1.NamespaceSystem).Get(t.Context(), "kube-proxy", metav1.GetOptions{})
		harness.Must(t, err)
		return proxy.Status.NumberAvailable == 1
	})
	harness.Eventually(t, "CoreDNS, metrics-server and the provisioner of volumes run", func() bool {
		deployments, err := c.AppsV1().Deployments(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
		harness.Must(t, err)
		return len(deployments.Items) == 3 && !slices.ContainsFunc(deployments.Items, func(d appsv1.Deployment) bool {
			return d.Status.AvailableReplicas != 1
		})
	})
	claim, err := c.CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault).Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}, metav1.CreateOptions{})
	harness.Must(t, err)
	if class := claim.Spec.StorageClassName; class == nil || *class != "local-path" {
		t.Errorf("a claim that names no class gets %v", class)
	}
	service, err := c.CoreV1().Services(metav1.NamespaceSystem).Get(t.Context(), "kube-dns", metav1.GetOptions{})
	harness.Must(t, err)
	if kubelet := readKubelet(t); len(kubelet.ClusterDNS) != 1 || kubelet.ClusterDNS[0] != service.Spec.ClusterIP {
		t.Errorf("the kubelet's DNS is %v, but CoreDNS is at %s", kubelet.ClusterDNS, service.Spec.ClusterIP)
	}
	s.Stop(t)
}

// readKubelet reads the kubelet's configuration like the kubelet, and rejects unknown fields.
func readKubelet(t *testing.T) *kubeletv1beta1.KubeletConfiguration {
	t.Helper()
	text, err := os.ReadFile(board + "kubelet.yaml")
	harness.Must(t, err)
	read := &kubeletv1beta1.KubeletConfiguration{}
	harness.Must(t, yaml.UnmarshalStrict(text, read))
	if read.APIVersion != kubeletv1beta1.SchemeGroupVersion.String() || read.Kind != "KubeletConfiguration" {
		t.Fatalf("the file is a %s %s", read.APIVersion, read.Kind)
	}
	return read
}
