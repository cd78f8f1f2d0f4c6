package simnodes_test

import (
	"os"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sqube/sqube/server/controlplane"
	"github.com/sqube/sqube/server/servertest"
	"github.com/sqube/sqube/server/simnodes"
)

// TestVirtual runs days of a cluster in virtual time.
func TestVirtual(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := servertest.Run(t, servertest.Options{Virtual: true, ControlPlane: controlplane.All})
		c := kubernetes.NewForConfigOrDie(s.Config)
		nodes := s.Nodes(t, simnodes.Options{Count: 2, Scripts: []simnodes.Script{
			{Labels: "job-name=import", First: 2, Runs: []simnodes.Run{{simnodes.Wait(time.Hour), simnodes.Log("no database"), simnodes.Exit(1)}}},
			{Labels: "job-name=import", Runs: []simnodes.Run{{simnodes.Wait(time.Hour), simnodes.Log("done"), simnodes.Exit(0)}}},
		}})
		_ = nodes
		start := time.Now()
		j := job("import")
		j.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
		if _, err := c.BatchV1().Jobs("default").Create(t.Context(), j, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.AppsV1().Deployments("default").Create(t.Context(), deployment("web", 3), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		buf := make([]byte, 16<<20)
		os.WriteFile("/tmp/h/stacks.txt", buf[:runtime.Stack(buf, true)], 0o644)
		for range 0 {
			time.Sleep(40 * time.Minute)
			synctest.Wait()
			for _, p := range list(t, c, "") {
				t.Log(time.Since(start), p.Name, p.Status.Phase, p.Spec.NodeName, p.Status.Conditions)
			}
			l, _ := c.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
			for _, p := range l.Items {
				t.Log(p.Name, p.Spec.Taints, p.Status.Conditions[3])
			}
			e, _ := c.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
			for _, p := range e.Items {
				t.Log(p.Reason, p.Message)
			}
		}
	})
}
