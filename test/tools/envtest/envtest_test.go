package envtest

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// patience limits every wait on a machine that is busy with other tests.
const patience = time.Minute

// assets is KUBEBUILDER_ASSETS.
var assets string

func TestMain(m *testing.M) { os.Exit(run(m)) }

// run writes the assets with the sqube that SQUBE_BIN names.
func run(m *testing.M) int {
	var err error
	if assets, err = os.MkdirTemp("", "sqube-envtest-"); err != nil {
		panic(err)
	}
	defer os.RemoveAll(assets)
	out, err := exec.Command(os.Getenv("SQUBE_BIN"), "envtest", "--kubectl", os.Getenv("SQUBE_KUBECTL"), assets).CombinedOutput()
	if err != nil {
		panic(string(out) + err.Error() + ": SQUBE_BIN and SQUBE_KUBECTL must name programs (make e2e)")
	}
	return m.Run()
}

// start starts an environment that is stopped when the test ends.
func start(t *testing.T, change func(*envtest.Environment)) (*envtest.Environment, *rest.Config) {
	t.Helper()
	e := &envtest.Environment{BinaryAssetsDirectory: assets, ControlPlaneStartTimeout: patience, ControlPlaneStopTimeout: patience}
	if change != nil {
		change(e)
	}
	c, err := e.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Stop(); err != nil {
			t.Error(err)
		}
	})
	return e, c
}

func newClient(t *testing.T, c *rest.Config) client.Client {
	t.Helper()
	made, err := client.New(c, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// TestControllers runs a controller in several environments at once. Each sees only its own objects.
func TestControllers(t *testing.T) {
	for _, name := range []string{"first", "second", "third"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, c := start(t, nil)
			m, err := ctrl.NewManager(c, ctrl.Options{
				Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
			})
			if err != nil {
				t.Fatal(err)
			}
			err = ctrl.NewControllerManagedBy(m).For(&corev1.ConfigMap{}).Complete(&labeler{m.GetClient(), name})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- m.Start(ctx) }()
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "seen"}}
			if err := newClient(t, c).Create(ctx, object); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the controller labels the ConfigMap", func() bool {
				return newClient(t, c).Get(ctx, client.ObjectKeyFromObject(object), object) == nil && object.Labels["seen-by"] == name
			})
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// labeler is a controller that labels ConfigMaps with its name.
type labeler struct {
	client client.Client
	name   string
}

// Reconcile implements reconcile.Reconciler.
func (l *labeler) Reconcile(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
	object := &corev1.ConfigMap{}
	if err := l.client.Get(ctx, r.NamespacedName, object); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := object.DeepCopy()
	metav1.SetMetaDataLabel(&object.ObjectMeta, "seen-by", l.name)
	return ctrl.Result{}, l.client.Patch(ctx, object, client.MergeFrom(before))
}

// TestRestart restarts the API server with the same etcd: all objects are kept, including custom resources.
func TestRestart(t *testing.T) {
	t.Parallel()
	e, c := start(t, func(e *envtest.Environment) { e.CRDs = []*apiextensionsv1.CustomResourceDefinition{boats()} })
	made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kept"}}
	if err := newClient(t, c).Create(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	server := e.ControlPlane.GetAPIServer()
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	admin, err := e.AddUser(envtest.User{Name: "again", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	again := newClient(t, admin.Config())
	found := &corev1.ConfigMap{}
	if err := again.Get(t.Context(), client.ObjectKeyFromObject(made), found); err != nil || found.UID != made.UID || found.ResourceVersion != made.ResourceVersion {
		t.Errorf("after the restart the ConfigMap is %s (%s), but was %s (%s): %v", found.UID, found.ResourceVersion, made.UID, made.ResourceVersion, err)
	}
	list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "demo.example.com/v1", Kind: "BoatList"}}
	if err := again.List(t.Context(), list); err != nil {
		t.Errorf("after the restart custom resources are not served: %v", err)
	}
}

// TestLikeKubeAPIServer checks what tests with envtest rely on: flags, users, kubectl, and the absence of controllers.
func TestLikeKubeAPIServer(t *testing.T) {
	t.Parallel()
	e, c := start(t, func(e *envtest.Environment) {
		e.ControlPlane.GetAPIServer().Configure().
			Set("enable-garbage-collector", "false").Set("watch-cache", "false").Set("runtime-config", "api/all=true").
			Append("disable-admission-plugins", "ResourceQuota").Set("max-requests-inflight", "900").Enable("profiling").
			Set("peer-advertise-port", "6443").Set("enable-logs-handler", "true")
		e.ControlPlane.Etcd = &envtest.Etcd{}
		e.ControlPlane.Etcd.Configure().Set("quota-backend-bytes", "1000000000").Set("max-txn-ops", "512").Enable("pre-vote")
	})
	admin := newClient(t, c)

	user, err := e.AddUser(envtest.User{Name: "jane", Groups: []string{"developers"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = newClient(t, user.Config()).List(t.Context(), &corev1.SecretList{})
	if err == nil || !strings.Contains(err.Error(), `User "jane" cannot list resource "secrets"`) {
		t.Errorf("a user without permissions gets %v", err)
	}

	stdout, stderr, err := e.ControlPlane.KubeCtl().Run("get", "namespace", "default", "-o", "name")
	if got := read(t, stdout); err != nil || got != "namespace/default\n" {
		t.Errorf("kubectl prints %q and %q: %v", got, read(t, stderr), err)
	}

	// A namespace is removed only once a controller has emptied it, and the controllers would create a service account too.
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "lasting"}}
	if err := admin.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "lasting", Name: "one"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	if err := admin.Create(t.Context(), pod); err != nil {
		t.Errorf("a Pod without a service account: %v", err)
	}
	if err := admin.Delete(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	accounts := &corev1.ServiceAccountList{}
	if err := admin.List(t.Context(), accounts); err != nil || len(accounts.Items) > 0 {
		t.Errorf("there are %d service accounts: %v", len(accounts.Items), err)
	}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(namespace), namespace); err != nil || namespace.Status.Phase != corev1.NamespaceTerminating {
		t.Errorf("the namespace is %s: %v", namespace.Status.Phase, err)
	}
}

// TestControlPlane asks for Kubernetes' controllers and a node through envtest's API. A Job completes, and its namespace goes away.
func TestControlPlane(t *testing.T) {
	t.Parallel()
	_, c := start(t, func(e *envtest.Environment) {
		e.ControlPlane.GetAPIServer().Configure().Set("control-plane", "true").Set("simulated-nodes", "1")
	})
	admin := newClient(t, c)
	namespace := createNamespace(t, admin)
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "import"}}
	job.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}}}
	if err := admin.Create(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Job completes", func() bool {
		return admin.Get(t.Context(), client.ObjectKeyFromObject(job), job) == nil && job.Status.CompletionTime != nil
	})
	deleteNamespace(t, admin, namespace)
}

// TestAPIControllers asks for the controllers that the API itself needs, so that a namespace goes away.
func TestAPIControllers(t *testing.T) {
	t.Parallel()
	_, c := start(t, func(e *envtest.Environment) { e.ControlPlane.GetAPIServer().Configure().Set("controllers", "api") })
	admin := newClient(t, c)
	deleteNamespace(t, admin, createNamespace(t, admin))
}

func createNamespace(t *testing.T, admin client.Client) *corev1.Namespace {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}
	if err := admin.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	return namespace
}

// deleteNamespace deletes a namespace and waits until it is gone.
func deleteNamespace(t *testing.T, admin client.Client, namespace *corev1.Namespace) {
	t.Helper()
	if err := admin.Delete(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the namespace is gone", func() bool {
		return apierrors.IsNotFound(admin.Get(t.Context(), client.ObjectKeyFromObject(namespace), namespace))
	})
}

// TestNothingIsLeft looks for processes and files of a stopped environment.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	e := &envtest.Environment{BinaryAssetsDirectory: assets, ControlPlaneStartTimeout: patience, ControlPlaneStopTimeout: patience}
	if _, err := e.Start(); err != nil {
		t.Fatal(err)
	}
	folders := []string{e.ControlPlane.APIServer.CertDir, e.ControlPlane.Etcd.DataDir}
	if _, err := os.Stat(filepath.Join(folders[1], "sqube.db")); err != nil {
		t.Errorf("the state is not in etcd's folder: %v", err)
	}
	if err := e.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		if _, err := os.Stat(folder); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", folder, err)
		}
	}
}

func read(t *testing.T, from io.Reader) string {
	t.Helper()
	text, err := io.ReadAll(from)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func boats() *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "boats.demo.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "demo.example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "boats", Singular: "boat", Kind: "Boat", ListKind: "BoatList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
			}},
		},
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, patience, true, func(context.Context) (bool, error) { return holds(), nil })
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}
