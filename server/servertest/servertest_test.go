package servertest_test

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sqube/sqube/server/servertest"
	"github.com/sqube/sqube/test/harness"
)

// TestServers runs several servers at once, and checks that each has its own objects, accepts only its own administrator, and can
// be stopped alone.
func TestServers(t *testing.T) {
	const n = 4
	var servers [n]*servertest.Server
	var failed [n]error
	var starting sync.WaitGroup
	for i := range n {
		starting.Go(func() { servers[i], failed[i] = servertest.Start(servertest.Options{}) })
	}
	starting.Wait()
	harness.Must(t, errors.Join(failed[:]...))
	for i, s := range servers {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("of-%d", i)}}
		if _, err := client(t, s).CoreV1().ConfigMaps("default").Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	stranger := *servers[0].Config
	stranger.Host, stranger.CAData = servers[1].Config.Host, servers[1].Config.CAData
	if _, err := kubernetes.NewForConfigOrDie(&stranger).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("a server accepts another server's administrator")
	}
	for i, s := range servers {
		list, err := client(t, s).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name!=kube-root-ca.crt"})
		if err != nil || len(list.Items) != 1 || list.Items[0].Name != fmt.Sprintf("of-%d", i) {
			t.Errorf("server %d has %d ConfigMaps: %v", i, len(list.Items), err)
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}
}

// TestKubeconfig checks that the administrator's kubeconfig works and is removed, and that controllers run.
func TestKubeconfig(t *testing.T) {
	s := servertest.Run(t, servertest.Options{})
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
	harness.Must(t, err)
	admin := kubernetes.NewForConfigOrDie(config)
	harness.Eventually(t, "the service account default is created", func() bool {
		_, err := admin.CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	})
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(s.Kubeconfig); !os.IsNotExist(err) {
		t.Errorf("the kubeconfig of a stopped server still exists: %v", err)
	}
}

func client(t *testing.T, s *servertest.Server) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(s.Config)
	harness.Must(t, err)
	return c
}
