package servertest_test

import (
	"context"
	"net"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sqube/sqube/dialect/sqlite"
	"github.com/sqube/sqube/server"
	"github.com/sqube/sqube/server/pipenet"
	"github.com/sqube/sqube/server/servertest"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/test/harness"
)

// TestWake checks that the first requests to a server on an existing database are answered rightly, although it has just been built: an ordinary
// user has rights, and sees definitions and their objects. What no request waits for begins later, and restores a default role.
func TestWake(t *testing.T) {
	file := backup(t, func(s *servertest.Server) {
		allow(t, s, "jane", "cluster-admin")
		boat := &unstructured.Unstructured{Object: map[string]any{"apiVersion": boats.GroupVersion().String(), "kind": "Boat", "metadata": map[string]any{"name": "one"}}}
		_, err := dynamic.NewForConfigOrDie(s.Config).Resource(boats).Namespace("default").Create(t.Context(), boat, metav1.CreateOptions{})
		harness.Must(t, err)
		harness.Must(t, client(t, s).RbacV1().ClusterRoles().Delete(t.Context(), "view", metav1.DeleteOptions{}))
	})
	servertest.Run(t, servertest.Options{}) // has made what servers share
	for range 3 {
		w := wake(t, file)
		config := w.user(t, "jane")
		got, err := dynamic.NewForConfigOrDie(config).Resource(boats).Namespace("default").Get(t.Context(), "one", metav1.GetOptions{})
		if err != nil || got.GetName() != "one" {
			t.Errorf("a custom resource: %v", err)
		}
		clients := kubernetes.NewForConfigOrDie(config)
		resources, err := clients.Discovery().ServerResourcesForGroupVersion(boats.GroupVersion().String())
		if err != nil || len(resources.APIResources) == 0 {
			t.Errorf("its discovery: %v", err)
		}
		if _, err := clients.CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
		w.sleep(t)
	}
	w := wake(t, file)
	groups, err := kubernetes.NewForConfigOrDie(w.user(t, "jane")).Discovery().ServerGroups()
	harness.Must(t, err)
	if !slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == boats.Group }) {
		t.Errorf("the group of a definition is missing in %v", groups)
	}
	roles := kubernetes.NewForConfigOrDie(w.user(t, "jane")).RbacV1().ClusterRoles()
	if _, err := roles.Get(t.Context(), "view", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a default role that was deleted: %v", err)
	}
	close(w.later)
	harness.Must(t, w.server.Wait(t.Context()))
	if _, err := roles.Get(t.Context(), "view", metav1.GetOptions{}); err != nil {
		t.Errorf("a default role that was deleted: %v", err)
	}
	w.sleep(t)
}

// user returns a configuration for clients of a user.
func (w *woken) user(t *testing.T, name string) *rest.Config {
	t.Helper()
	kubeconfig, err := w.server.Kubeconfig(name)
	harness.Must(t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	harness.Must(t, err)
	config.Dial, config.QPS = w.network.Dial, -1
	return config
}

// allow gives a user the rights of a ClusterRole.
func allow(t testing.TB, s *servertest.Server, user, role string) {
	t.Helper()
	_, err := kubernetes.NewForConfigOrDie(s.Config).RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{})
	harness.Must(t, err)
}

// woken is a server on a database in a file.
type woken struct {
	server  *server.Server
	network pipenet.Network
	later   chan struct{} // see server.Options
	stop    context.CancelFunc
	ended   chan error
}

func wake(t testing.TB, file string) *woken {
	t.Helper()
	options := server.NewOptions()
	options.DataDir, options.InMemory, options.KeysVary, options.DropConnections = t.TempDir(), true, true, true
	options.Serving.BindAddress, options.Serving.BindPort = net.IPv4(127, 0, 0, 1), 6443
	harness.Must(t, options.Complete())
	built := make(chan *server.Server, 1)
	ctx, stop := context.WithCancel(context.Background())
	w := &woken{later: make(chan struct{}), stop: stop, ended: make(chan error, 1)}
	options.Later = w.later
	listener, err := w.network.Listen("tcp", "127.0.0.1:6443")
	harness.Must(t, err)
	process := server.Process{
		Options: options, Outlived: true, Built: func(_ context.Context, s *server.Server) { built <- s },
		Open: func(ctx context.Context, o sqlstore.Options) (*sqlstore.Store, error) {
			engine, err := sqlite.OpenWith(ctx, file, sqlite.Options{Many: true})
			if err != nil {
				return nil, err
			}
			return sqlstore.Open(ctx, engine, o)
		},
	}
	go func() {
		w.ended <- process.Run(ctx, listener)
	}()
	select {
	case w.server = <-built:
	case err := <-w.ended:
		t.Fatal(err)
	}
	return w
}

func (w *woken) sleep(t testing.TB) {
	t.Helper()
	w.stop()
	harness.Must(t, <-w.ended)
}
