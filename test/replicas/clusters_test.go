package replicas

import (
	"encoding/json"
	"fmt"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// clustersPath is where the host has its Clusters.
const clustersPath = "/apis/fleet.sqube.io/v1alpha1/namespaces/default/clusters"

// hosted returns clients of the hosted cluster default/NAME through each server, with credentials that one of them has issued.
func hosted(t *testing.T, replicas []replica, by int, name string) (clients []kubernetes.Interface, configs []*rest.Config) {
	t.Helper()
	var asked struct {
		Status struct {
			Kubeconfig string `json:"kubeconfig"`
		} `json:"status"`
	}
	body := `{"spec":{"user":"alice","groups":["system:masters"]}}`
	harness.Eventually(t, fmt.Sprintf("server %d issues credentials", by), func() bool {
		answer, err := replicas[by].CoreV1().RESTClient().Post().AbsPath(clustersPath + "/" + name + "/kubeconfig").Body([]byte(body)).DoRaw(t.Context())
		return err == nil && json.Unmarshal(answer, &asked) == nil
	})
	for _, r := range replicas {
		config, err := clientcmd.RESTConfigFromKubeConfig([]byte(asked.Status.Kubeconfig))
		harness.Must(t, err)
		config.Host = r.URL + "/clusters/default/" + name
		clients, configs = append(clients, client(t, config)), append(configs, config)
	}
	return clients, configs
}

// TestHostedClusters has two servers host a cluster in one database: one has it awake, and the other one passes requests on to it, until the
// first one dies.
func TestHostedClusters(t *testing.T) {
	t.Parallel()
	datastore, key := harness.Postgres(t), sqube.KeyFile(t)
	replicas := make([]replica, 2)
	for i := range replicas {
		replicas[i].Server = sqube.Launch(t, sqube.Options{Datastore: datastore, Args: []string{keyFlag, key, "--clusters"}})
	}
	for i := range replicas {
		replicas[i].WaitReady(t)
		replicas[i].Interface = client(t, replicas[i].Config(t))
	}
	const manifest = `{"apiVersion":"fleet.sqube.io/v1alpha1","kind":"Cluster","metadata":{"name":"one"},"spec":{"keepDeleted":"0s"}}`
	harness.Eventually(t, "there is a Cluster", func() bool {
		_, err := replicas[0].CoreV1().RESTClient().Post().AbsPath(clustersPath).Body([]byte(manifest)).DoRaw(t.Context())
		return err == nil
	})
	clients, configs := hosted(t, replicas, 0, "one")
	hosted(t, replicas, 1, "one") // which does not have it awake
	for i, config := range configs {
		if who := self(t, config); who != "alice" {
			t.Errorf("through server %d, the client is %q", i, who)
		}
	}
	agree(t, clients)
	databases(t, replicas[0].Datastore, 1)
	lastWrites(t, replicas[0], clients[1])

	replicas[0].Start(t)
	for i, config := range configs {
		if who := self(t, config); who != "alice" {
			t.Errorf("through server %d, after a server died, the client is %q", i, who)
		}
	}
	agree(t, clients)
	silence(t, replicas[1], clients[0], clients[1])
	if _, err := replicas[0].CoreV1().RESTClient().Delete().AbsPath(clustersPath + "/one").DoRaw(t.Context()); err != nil {
		t.Error(err)
	}
	databases(t, replicas[0].Datastore, 0) // though another server has it awake
}

// silence has the server be stopped for a while that has a cluster awake. When it goes on, it has lost the cluster, and knows it.
func silence(t *testing.T, owner replica, client, throughOwner kubernetes.Interface) {
	t.Helper()
	harness.Must(t, owner.Signal(syscall.SIGSTOP))
	t.Cleanup(func() { _ = owner.Signal(syscall.SIGCONT) })
	n := 0
	harness.Eventually(t, "another server has the cluster", func() bool {
		n++
		_, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), configMap(fmt.Sprint("meanwhile-", n)), metav1.CreateOptions{})
		return err == nil
	})
	harness.Must(t, owner.Signal(syscall.SIGCONT))
	maps := throughOwner.CoreV1().ConfigMaps("default")
	if _, err := maps.Get(t.Context(), fmt.Sprint("meanwhile-", n), metav1.GetOptions{}); err != nil {
		t.Errorf("a server that was silent does not know what was written meanwhile: %v", err)
	}
	if _, err := maps.Create(t.Context(), configMap("afterwards"), metav1.CreateOptions{}); err != nil {
		t.Errorf("a write through a server that was silent: %v", err)
	}
	if _, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), "afterwards", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

// databases checks how many clusters' databases there are.
func databases(t *testing.T, datastore string, want int) {
	t.Helper()
	const count = "SELECT count(*), (SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'sqube\\_%') FROM fleet_clusters"
	conn := harness.Connect(t, datastore)
	harness.Eventually(t, fmt.Sprintf("there are %d databases", want), func() bool {
		var listed, schemas int
		harness.Must(t, conn.QueryRow(t.Context(), count).Scan(&listed, &schemas))
		return listed == want && schemas == want
	})
}

// agree writes through each server, while the other one watches, and reads through both.
func agree(t *testing.T, clients []kubernetes.Interface) {
	t.Helper()
	for i, writer := range clients {
		reader := clients[(i+1)%len(clients)]
		watch, err := reader.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{LabelSelector: "by"})
		harness.Must(t, err)
		name := fmt.Sprintf("written-%d-%d", i, time.Now().UnixNano())
		object := configMap(name)
		object.Labels = map[string]string{"by": "test"}
		if _, err := writer.CoreV1().ConfigMaps("default").Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		for event := range watch.ResultChan() {
			if event.Object.(metav1.Object).GetName() == name {
				break
			}
		}
		watch.Stop()
		if _, err := reader.CoreV1().ConfigMaps("default").Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Errorf("what was written through server %d: %v", i, err)
		}
	}
}

// lastWrites kills the server that has a cluster awake while a client of another one writes. What was acknowledged is there.
func lastWrites(t *testing.T, owner replica, client kubernetes.Interface) {
	t.Helper()
	maps := client.CoreV1().ConfigMaps("default")
	acknowledged := map[string]bool{}
	const before, after = 20, 5
	var killed time.Time
	for n, later := 0, 0; later < after; n++ {
		name := fmt.Sprint("write-", n)
		if _, err := maps.Create(t.Context(), configMap(name), metav1.CreateOptions{}); err == nil {
			if acknowledged[name] = true; !killed.IsZero() {
				if later++; later == 1 {
					t.Logf("taken over after %s", time.Since(killed))
				}
			}
		} else if !apierrors.IsTimeout(err) { // what ran on the owner may or may not have had an effect; all others wait for the next one
			t.Errorf("a write returned %v", err)
		}
		if n == before {
			owner.Kill(t)
			killed = time.Now()
		}
	}
	list, err := maps.List(t.Context(), metav1.ListOptions{})
	harness.Must(t, err)
	for _, one := range list.Items {
		delete(acknowledged, one.Name)
	}
	if len(acknowledged) > 0 {
		t.Errorf("acknowledged writes are lost: %v", acknowledged)
	}
}
