package controlplane

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/fakenode"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestConfiguration checks that the controllers and the scheduler apply upstream's configuration files, that flags override
// these, and that controllers use their service accounts.
func TestConfiguration(t *testing.T) {
	t.Parallel()
	manager := write(t, `apiVersion: kubecontrollermanager.config.k8s.io/v1alpha1
kind: KubeControllerManagerConfiguration
KubeCloudShared:
  AllocateNodeCIDRs: true
  ClusterCIDR: 10.32.0.0/16
  UseServiceAccountCredentials: true
NodeIPAMController:
  NodeCIDRMaskSize: 26
`)
	scheduler := write(t, `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
- schedulerName: packs
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
`)
	s := sqube.Start(t, sqube.Options{Datastore: harness.SQLite(t), Args: []string{
		"--controllers=*", "--scheduler", "--controller-manager-config", manager, "--node-cidr-mask-size=25", "--scheduler-config", scheduler,
	}})
	c := client(t, s)
	fakenode.Join(t, c, fakenode.Options{Name: "board"})
	harness.Eventually(t, "the node has ranges of the file's and of the flag's size", func() bool {
		node, err := c.CoreV1().Nodes().Get(t.Context(), "board", metav1.GetOptions{})
		return err == nil && node.Spec.PodCIDR == "10.32.0.0/25"
	})
	deploy(t, c, "web", 1)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "packed"}, Spec: template("packed", "10m", nil).Spec}
	pod.Spec.SchedulerName = "packs"
	if _, err := c.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the file's other scheduler has bound the Pod", func() bool {
		pod, err := c.CoreV1().Pods("default").Get(t.Context(), "packed", metav1.GetOptions{})
		return err == nil && pod.Spec.NodeName == "board"
	})
	s.Stop(t)
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
