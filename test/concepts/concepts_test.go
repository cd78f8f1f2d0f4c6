package concepts

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

var against = flag.String("against", "", "prove the promises of the server that this kubeconfig names, instead of sqube's")

// Most promises wait most of the time, so it is not the number of processors that limits how many run at once, but these.
const (
	serversAtOnce  = 4
	promisesAtOnce = 8 // on each server
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "1000"); err != nil {
		panic(err) // the flag is gone
	}
	os.Exit(m.Run())
}

// room is taken by each test that has a server.
var room = make(chan struct{}, serversAtOnce)

// engines runs a test that starts servers, on each engine, when there is room for them.
func engines(t *testing.T, run func(t *testing.T, engine harness.Engine)) {
	t.Helper()
	t.Parallel()
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		room <- struct{}{}
		t.Cleanup(func() { <-room })
		run(t, engine)
	})
}

// promise is one statement of the documents, and what shows that it is kept.
type promise struct {
	statement string
	// proof gets a namespace of its own. It runs beside those of the other promises on the same server.
	proof func(t *testing.T, c *cluster)
}

// prove runs a section: its promises on one server with the given flags, on each engine.
func prove(t *testing.T, args []string, promises ...promise) {
	t.Helper()
	if *against != "" {
		config, err := clientcmd.BuildConfigFromFlags("", *against)
		if err != nil {
			t.Fatal(err)
		}
		proveOn(t, config, nil, promises)
		return
	}
	engines(t, func(t *testing.T, engine harness.Engine) {
		server := sqube.Start(t, sqube.Options{Datastore: engine.Datastore, Args: args})
		proveOn(t, server.Config(t), server, promises)
	})
}

func proveOn(t *testing.T, config *rest.Config, server *sqube.Server, promises []promise) {
	turn := make(chan struct{}, promisesAtOnce)
	// One group, so that the server outlives all of them.
	t.Run("", func(t *testing.T) {
		for i, p := range promises {
			t.Run(p.statement, func(t *testing.T) {
				t.Parallel()
				turn <- struct{}{}
				defer func() { <-turn }()
				p.proof(t, newCluster(t, config, server, i))
			})
		}
	})
}

// cluster is a server as one promise sees it.
type cluster struct {
	*client // the administrator
	// server is the process; nil with -against.
	server *sqube.Server
	// config is that of the administrator.
	config *rest.Config
	// kube is the administrator's typed client.
	kube kubernetes.Interface
	// namespace is of the promise alone. It is also a fit name, or part of one, for what is not namespaced.
	namespace string
}

func newCluster(t *testing.T, config *rest.Config, server *sqube.Server, number int) *cluster {
	t.Helper()
	section, _, _ := strings.Cut(strings.TrimPrefix(t.Name(), "Test"), "/")
	config = rest.CopyConfig(config)
	config.QPS = -1 // no limit of the client's own
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{client: newClient(t, config), server: server, config: config, kube: kube, namespace: fmt.Sprintf("%s-%d", strings.ToLower(section), number)}
	if *against != "" { // whose state outlives the test
		c.namespace += "-" + rand.String(5)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}}
	if _, err := kube.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if *against != "" { // where no controller may run that makes it; Pods need it
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		if _, err := kube.CoreV1().ServiceAccounts(c.namespace).Create(t.Context(), account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	return c
}

// path is that of a resource in the promise's namespace: path("v1", "configmaps", "name"), path("apps/v1", "deployments").
func (c *cluster) path(groupVersion string, rest ...string) string {
	return c.global(groupVersion, append([]string{"namespaces", c.namespace}, rest...)...)
}

// global is a path of what is not namespaced, or of all namespaces.
func (c *cluster) global(groupVersion string, rest ...string) string {
	root := "/apis/"
	if !strings.Contains(groupVersion, "/") {
		root = "/api/"
	}
	return root + groupVersion + "/" + strings.Join(rest, "/")
}
