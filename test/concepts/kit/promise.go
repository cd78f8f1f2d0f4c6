package kit

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
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

// Against is the flag -against; "" means sqube itself.
var Against = flag.String("against", "", "test the server in this kubeconfig instead of sqube")

// Most promises mostly wait, so these constants, not the number of processors, limit how many run at once.
const (
	serversAtOnce  = 4
	promisesAtOnce = 8 // on each server
)

// Main runs a package's tests in parallel, within these limits.
func Main(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "1000"); err != nil {
		panic(err) // the flag no longer exists
	}
	os.Exit(m.Run())
}

// room has a slot for each test that has a server.
var room = make(chan struct{}, serversAtOnce)

// engines runs a test on some of the engines.
type engines func(t *testing.T, test func(t *testing.T, engine harness.Engine))

func onSQLite(t *testing.T, test func(t *testing.T, engine harness.Engine)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { test(t, harness.Engine{Name: "sqlite", Datastore: harness.SQLite(t)}) })
}

// OnSQLite runs a test that starts servers, when there is room for them.
func OnSQLite(t *testing.T, test func(t *testing.T, engine harness.Engine)) {
	t.Helper()
	run(t, onSQLite, test)
}

// OnEngines is OnSQLite on each engine.
func OnEngines(t *testing.T, test func(t *testing.T, engine harness.Engine)) {
	t.Helper()
	run(t, harness.Engines, test)
}

func run(t *testing.T, engines engines, test func(t *testing.T, engine harness.Engine)) {
	t.Helper()
	t.Parallel()
	engines(t, func(t *testing.T, engine harness.Engine) {
		room <- struct{}{}
		t.Cleanup(func() { <-room })
		test(t, engine)
	})
}

// Promise is one statement of the documentation, and its test.
type Promise struct {
	Statement string
	// Proof gets its own namespace. It runs in parallel with other promises on the same server.
	Proof func(t *testing.T, c *Cluster)
}

// Prove tests a section: its promises on one server with the given flags. The server is on SQLite: what a section says is decided
// above the store, unless it uses ProveOnEngines.
func Prove(t *testing.T, args []string, promises ...Promise) {
	t.Helper()
	prove(t, onSQLite, args, promises)
}

// ProveOnEngines is Prove on each engine, for sections about what is stored: reads, writes, watches and deletions.
func ProveOnEngines(t *testing.T, args []string, promises ...Promise) {
	t.Helper()
	prove(t, harness.Engines, args, promises)
}

func prove(t *testing.T, engines engines, args []string, promises []Promise) {
	t.Helper()
	if *Against != "" {
		config := Must(clientcmd.BuildConfigFromFlags("", *Against))(t)
		proveOn(t, config, nil, promises)
		return
	}
	run(t, engines, func(t *testing.T, engine harness.Engine) {
		server := sqube.Start(t, sqube.Options{Datastore: engine.Datastore, Args: args})
		proveOn(t, server.Config(t), server, promises)
	})
}

func proveOn(t *testing.T, config *rest.Config, server *sqube.Server, promises []Promise) {
	turn := make(chan struct{}, promisesAtOnce)
	// One group, so that the server outlives all of them.
	t.Run("", func(t *testing.T) {
		for i, p := range promises {
			t.Run(p.Statement, func(t *testing.T) {
				t.Parallel()
				turn <- struct{}{}
				defer func() { <-turn }()
				p.Proof(t, NewCluster(t, config, server, i))
			})
		}
	})
}

// Cluster is a server from the view of one promise.
type Cluster struct {
	*Client // the administrator
	// Server is the process; nil with -against.
	Server *sqube.Server
	// Config is that of the administrator.
	Config *rest.Config
	// Kube is the administrator's typed client.
	Kube kubernetes.Interface
	// Namespace is the promise's own namespace. It is also suitable as a name, or part of one, of cluster-scoped objects.
	Namespace string
}

// NewCluster creates the namespace of a promise, named after the section and the promise's number.
func NewCluster(t *testing.T, config *rest.Config, server *sqube.Server, number int) *Cluster {
	t.Helper()
	section, _, _ := strings.Cut(strings.TrimPrefix(t.Name(), "Test"), "/")
	config = rest.CopyConfig(config)
	config.QPS = -1 // no client-side limit
	kube := Must(kubernetes.NewForConfig(config))(t)
	c := &Cluster{Client: NewClient(t, config), Server: server, Config: config, Kube: kube, Namespace: fmt.Sprintf("%s-%d", strings.ToLower(section), number)}
	if *Against != "" { // its state outlives the test
		c.Namespace += "-" + rand.String(5)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.Namespace}}
	Must(kube.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}))(t)
	if *Against != "" { // it may have no controller to create the account that Pods need
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		if _, err := kube.CoreV1().ServiceAccounts(c.Namespace).Create(t.Context(), account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	return c
}

// Path returns the path of a resource in the promise's namespace: Path("v1", "configmaps", "name"), Path("apps/v1",
// "deployments").
func (c *Cluster) Path(groupVersion string, rest ...string) string {
	return c.ClusterPath(groupVersion, append([]string{"namespaces", c.Namespace}, rest...)...)
}

// ClusterPath returns a path of cluster-scoped resources, or of all namespaces.
func (c *Cluster) ClusterPath(groupVersion string, rest ...string) string {
	root := "/apis/"
	if !strings.Contains(groupVersion, "/") {
		root = "/api/"
	}
	return root + groupVersion + "/" + strings.Join(rest, "/")
}

// RefusesToStart runs a server with invalid flags, and expects it to exit with an error that names the flag and contains part.
func RefusesToStart(t *testing.T, flag, part string, args ...string) {
	t.Helper()
	serve := []string{"serve", "--data-dir", t.TempDir(), "--bind-address", "127.0.0.1", "--secure-port", "1"}
	output, err := exec.Command(sqube.Binary(t), append(serve, args...)...).CombinedOutput()
	var ended *exec.ExitError
	if text := string(output); !errors.As(err, &ended) || !strings.Contains(text, flag) || !strings.Contains(text, part) {
		t.Errorf("%v exits with %v and does not print %q with %q:\n%s", args, err, flag, part, text)
	}
}

// ChangesNothing runs requests on a collection, and fails unless its objects are unchanged and its watchers have received
// nothing. It then creates the object marker, so that watchers receive an event.
func (c *Cluster) ChangesNothing(t *testing.T, collection string, marker map[string]any, run func()) {
	t.Helper()
	before := c.Get(t, collection+"?fieldSelector=metadata.name!=kube-root-ca.crt").OK(t)
	watch := c.Watch(t, collection+"?watch=true&fieldSelector=metadata.name!=kube-root-ca.crt&resourceVersion="+before.ResourceVersion(t))
	run()
	after := c.Get(t, collection+"?fieldSelector=metadata.name!=kube-root-ca.crt").OK(t)
	Equal(t, after.Value(t, "items"), before.Value(t, "items"))
	made := c.Post(t, collection, marker).Created(t)
	if first := watch.Next(t); first.ResourceVersion() != made.ResourceVersion(t) {
		t.Errorf("watchers received %s %s", first.Type, first.Name())
	}
}
