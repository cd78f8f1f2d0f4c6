// Command examples forks a cluster many times, does something in each fork, prints what that changed, and throws the forks away.
//
//	examples NAMESPACE CLUSTER COUNT, with the host's kubeconfig in $KUBECONFIG
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sqube/sqube/server/fleet/v1alpha1"
)

func main() {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	must(err)
	config.QPS = -1 // it is the server that limits
	host, namespace, base := kubernetes.NewForConfigOrDie(config).CoreV1().RESTClient(), os.Args[1], os.Args[2]
	count, err := strconv.Atoi(os.Args[3])
	must(err)
	var attempts sync.WaitGroup
	for i := range count {
		attempts.Go(func() {
			for _, o := range attempt(host, "/apis/fleet.sqube.io/v1alpha1/namespaces/"+namespace+"/clusters", base, i) {
				fmt.Printf("%d\t%s %s %s/%s by %s\n", i, o.Operation, o.Resource, o.Namespace, o.Name, o.User)
			}
		})
	}
	attempts.Wait()
}

// attempt works in a fork, and returns what differs in it.
func attempt(host rest.Interface, clusters, base string, i int) []v1alpha1.ObjectDifference {
	var fork v1alpha1.Cluster
	fork.APIVersion, fork.Kind, fork.Name = "fleet.sqube.io/v1alpha1", "Cluster", fmt.Sprint(base, "-", i)
	fork.Spec.From = &v1alpha1.Origin{Cluster: &v1alpha1.ForkedCluster{Name: base}}
	fork.Spec.TTL = &metav1.Duration{Duration: time.Hour}
	body, err := json.Marshal(fork)
	must(err)
	ask(host.Post().AbsPath(clusters).Body(body), &fork)
	for path := clusters + "/" + fork.Name; fork.Status.URL == ""; time.Sleep(20 * time.Millisecond) {
		ask(host.Get().AbsPath(path), &fork)
	}
	var credentials v1alpha1.Credentials
	ask(host.Post().AbsPath(clusters, fork.Name, "kubeconfig"), &credentials)
	inside, err := clientcmd.RESTConfigFromKubeConfig([]byte(credentials.Status.Kubeconfig))
	must(err)
	work(kubernetes.NewForConfigOrDie(inside), i)
	var state v1alpha1.ClusterState
	ask(host.Get().AbsPath(clusters, fork.Name, "state"), &state)
	must(host.Delete().AbsPath(clusters, fork.Name).Do(context.Background()).Error())
	return state.Items
}

// work is what is evaluated, such as an agent.
func work(c kubernetes.Interface, i int) {
	made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("made-", i)}, Data: map[string]string{"by": "go"}}
	_, err := c.CoreV1().ConfigMaps("default").Create(context.Background(), made, metav1.CreateOptions{})
	must(err)
}

func ask(request *rest.Request, into any) {
	text, err := request.DoRaw(context.Background())
	must(err)
	must(json.Unmarshal(text, into))
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
