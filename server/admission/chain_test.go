package admission

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/spf13/pflag"
	"go.opentelemetry.io/otel/trace/noop"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"

	"github.com/sqube/sqube/server/loopback"
	"github.com/sqube/sqube/test/harness"
)

// client is a fake whose discovery also has OpenAPI, which policy plugins ask for.
type client struct {
	*fake.Clientset
	discovery *discovery.DiscoveryClient
}

func (c client) Discovery() discovery.DiscoveryInterfaces { return c.discovery }

func config(t *testing.T, o *Options, objects ...runtime.Object) Config {
	t.Helper()
	config := loopback.New(t.Context()).Config()
	unserved, err := discovery.NewDiscoveryClientForConfig(config)
	harness.Must(t, err)
	client := client{fake.NewClientset(objects...), unserved}
	f := informers.NewSharedInformerFactory(client, 0)
	services, err := NewServiceResolver(f, false, nil)
	harness.Must(t, err)
	return Config{
		Options:    o,
		Loopback:   config,
		Client:     client,
		Informers:  f,
		Published:  func(context.Context) bool { return true },
		Authorizer: authorizerfactory.NewAlwaysAllowAuthorizer(),
		Resources:  serverstorage.NewResourceConfig(),
		Services:   services,
		Tracing:    noop.NewTracerProvider(),
		Self:       config,
		ServerID:   "test",
		Drained:    t.Context().Done(),
	}
}

// run builds the chain and starts what it needs.
func run(t *testing.T, c Config) *Chain {
	t.Helper()
	chain, err := New(c)
	harness.Must(t, err)
	c.Informers.Start(t.Context().Done())
	for kind, synced := range c.Informers.WaitForCacheSync(t.Context().Done()) {
		if !synced {
			t.Fatalf("the informer of %s did not sync", kind)
		}
	}
	return chain
}

// create admits pod as the API would before it stores it.
func create(t *testing.T, c *Chain, pod *core.Pod) error {
	t.Helper()
	attrs := admission.NewAttributesRecord(pod, nil, core.Kind("Pod").WithVersion("v1"), pod.Namespace, pod.Name,
		core.Resource("pods").WithVersion("v1"), "", admission.Create, &metav1.CreateOptions{}, false, &user.DefaultInfo{Name: "jane"})
	objects := admission.NewObjectInterfacesFromScheme(legacyscheme.Scheme)
	if err := c.Interface.(admission.MutationInterface).Admit(t.Context(), attrs, objects); err != nil {
		return err
	}
	return c.Interface.(admission.ValidationInterface).Validate(t.Context(), attrs, objects)
}

func pod(namespace string) *core.Pod {
	return &core.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p"},
		Spec: core.PodSpec{
			Containers:      []core.Container{{Name: "c", Image: "i"}},
			SecurityContext: &core.PodSecurityContext{},
		},
	}
}

func namespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
	}
}

func serviceAccount(namespace string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}}
}

// TestMeasuredSteps checks that there are no metrics of steps that a plugin does not have.
func TestMeasuredSteps(t *testing.T) {
	chain := run(t, config(t, NewOptions(), namespace("ns", nil), serviceAccount("ns")))
	harness.Must(t, create(t, chain, pod("ns")))
	families, err := legacyregistry.DefaultGatherer.Gather()
	harness.Must(t, err)
	steps := map[string][]string{}
	for _, family := range families {
		if family.GetName() != "apiserver_admission_controller_admission_duration_seconds" {
			continue
		}
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			if !slices.Contains(steps[labels["name"]], labels["type"]) {
				steps[labels["name"]] = append(steps[labels["name"]], labels["type"])
			}
		}
	}
	for name, want := range map[string][]string{
		"NamespaceLifecycle": {"admit"}, "DefaultTolerationSeconds": {"admit"}, "ServiceAccount": {"admit", "validate"},
		"ResourceQuota": {"validate"}, "PodSecurity": {"validate"}, "ValidatingAdmissionWebhook": {"validate"},
	} {
		if got := slices.Sorted(slices.Values(steps[name])); !slices.Equal(got, want) {
			t.Errorf("%s: measured %v, want %v", name, got, want)
		}
	}
}

func TestDisabledPluginDoesNotRun(t *testing.T) {
	chain := run(t, config(t, parse(t, "--disable-admission-plugins=ServiceAccount"), namespace("ns", nil)))
	p := pod("ns")
	if err := create(t, chain, p); err != nil || p.Spec.ServiceAccountName != "" {
		t.Errorf("got service account %q, %v", p.Spec.ServiceAccountName, err)
	}
}

func TestConfigFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admission.yaml")
	write := func(content string) {
		t.Helper()
		harness.Must(t, os.WriteFile(path, []byte(content), 0o600))
	}
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n- name: PodSecurity\n  configuration:\n"
	write(head + `    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults: {enforce: baseline}
`)
	o := parse(t, "--admission-control-config-file="+path)
	p := pod("ns")
	p.Spec.HostNetwork = true
	if err := create(t, run(t, config(t, o, namespace("ns", nil), serviceAccount("ns"))), p); !apierrors.IsForbidden(err) {
		t.Errorf("with a stricter default: %v", err)
	}
	for name, content := range map[string]string{
		"broken":      "{",
		"other kind":  "apiVersion: v1\nkind: Pod\n",
		"wrong level": head + "    apiVersion: pod-security.admission.config.k8s.io/v1\n    kind: PodSecurityConfiguration\n    defaults: {enforce: nope}\n",
	} {
		write(content)
		if _, err := New(config(t, o)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestLatePluginsAreUpstreams checks that late plugins handle the operations that upstream's handle.
func TestLatePluginsAreUpstreams(t *testing.T) {
	for name, kind := range kinds {
		upstream, err := kind.build(nil)
		harness.Must(t, err)
		late := admission.NewHandler(kind.operations...)
		for _, operation := range []admission.Operation{admission.Connect, admission.Create, admission.Delete, admission.Update} {
			if late.Handles(operation) != upstream.Handles(operation) {
				t.Errorf("%s: upstream handles %s: %t", name, operation, upstream.Handles(operation))
			}
		}
	}
}

// defaultOn are kube-apiserver's plugins that are on by default, and the one that kubeadm adds, in order of execution.
var defaultOn = slices.DeleteFunc(slices.Clone(kubeoptions.AllOrderedPlugins), func(name string) bool {
	return kubeoptions.DefaultOffAdmissionPlugins().Has(name) && name != "NodeRestriction"
})

func parse(t *testing.T, args ...string) *Options {
	t.Helper()
	o := NewOptions()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	fs.SetOutput(t.Output())
	o.AddFlags(fs)
	harness.Must(t, fs.Parse(args))
	return o
}

func TestNames(t *testing.T) {
	without := func(names ...string) []string {
		return slices.DeleteFunc(slices.Clone(defaultOn), func(n string) bool { return slices.Contains(names, n) })
	}
	withPullAlways := slices.Insert(slices.Clone(defaultOn), slices.Index(defaultOn, "PodSecurity"), "AlwaysPullImages")
	for _, c := range []struct {
		name string
		args []string
		want []string
	}{
		{"defaults", nil, defaultOn},
		{"one more", []string{"--enable-admission-plugins=AlwaysPullImages"}, withPullAlways},
		{"one that is on", []string{"--enable-admission-plugins=NodeRestriction"}, defaultOn},
		{"without NodeRestriction", []string{"--disable-admission-plugins=NodeRestriction"}, without("NodeRestriction")},
		{"two fewer", []string{"--disable-admission-plugins=LimitRanger,ResourceQuota"}, without("LimitRanger", "ResourceQuota")},
		{"the deprecated flag", []string{"--admission-control=ResourceQuota,NamespaceLifecycle"}, []string{"NamespaceLifecycle", "ResourceQuota"}},
	} {
		o := parse(t, c.args...)
		if err := o.Validate(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if got := o.Names(); !slices.Equal(got, c.want) {
			t.Errorf("%s:\n got %v\nwant %v", c.name, got, c.want)
		}
	}
}
