package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sqube/sqube/server/fleet/v1alpha1"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// fleetHost is a server with --clusters, and a namespace of a test.
type fleetHost struct {
	*sqube.Server
	kube      kubernetes.Interface
	namespace string
}

func startFleetHost(t *testing.T, engine harness.Engine) *fleetHost {
	t.Helper()
	s := sqube.Start(t, sqube.Options{Datastore: engine.Datastore, Args: []string{"--clusters", "--history", "1h"}})
	h := &fleetHost{Server: s, kube: unlimited(t, s.Config(t))}
	harness.Eventually(t, "Clusters are served", func() bool {
		return h.raw(t, h.kube, http.MethodGet, "/apis/fleet.sqube.io/v1alpha1/clusters", nil, nil) == nil
	})
	return h
}

// in returns the host with a namespace of its own for a test.
func (h *fleetHost) in(t *testing.T, namespace string) *fleetHost {
	t.Helper()
	_, err := h.kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	harness.Must(t, err)
	return &fleetHost{h.Server, h.kube, namespace}
}

func unlimited(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	config.QPS = -1
	return newKube(t, config)
}

// as returns a client of a user of the host, with a certificate.
func (h *fleetHost) as(t *testing.T, user string) kubernetes.Interface {
	t.Helper()
	text, log, code := sqube.Run(t, []string{"kubeconfig", "--data-dir", h.DataDir, "--user", user})
	if code != 0 {
		t.Fatal(log)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(text))
	harness.Must(t, err)
	return unlimited(t, config)
}

// raw sends a request to the host.
func (h *fleetHost) raw(t *testing.T, as kubernetes.Interface, verb, path string, body, into any) error {
	t.Helper()
	request := as.Discovery().RESTClient().Verb(verb).AbsPath(path)
	if body != nil {
		text, isText := body.(string)
		if !isText {
			encoded, err := json.Marshal(body)
			harness.Must(t, err)
			text = string(encoded)
		}
		kind := "application/json"
		if verb == http.MethodPatch {
			kind = "application/merge-patch+json"
		}
		request = request.SetHeader("Content-Type", kind).Body([]byte(text))
	}
	answer, err := request.DoRaw(t.Context())
	if err == nil && into != nil {
		harness.Must(t, json.Unmarshal(answer, into))
	}
	return err
}

func (h *fleetHost) path(resource string, rest ...string) string {
	return strings.Join(append([]string{"/apis/fleet.sqube.io/v1alpha1/namespaces", h.namespace, resource}, rest...), "/")
}

// create creates a Cluster with a spec in JSON.
func (h *fleetHost) create(t *testing.T, as kubernetes.Interface, name, spec string) error {
	t.Helper()
	return h.raw(t, as, http.MethodPost, h.path("clusters"),
		fmt.Sprintf(`{"apiVersion": "fleet.sqube.io/v1alpha1", "kind": "Cluster", "metadata": {"name": %q}, "spec": %s}`, name, spec), nil)
}

// made creates a Cluster and waits until it is ready.
func (h *fleetHost) made(t *testing.T, name, spec string) *v1alpha1.Cluster {
	t.Helper()
	harness.Must(t, h.create(t, h.kube, name, spec))
	return h.until(t, name, "is ready", func(c *v1alpha1.Cluster) bool {
		return apimeta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionReady)
	})
}

func (h *fleetHost) get(t *testing.T, name string) (*v1alpha1.Cluster, error) {
	c := &v1alpha1.Cluster{}
	return c, h.raw(t, h.kube, http.MethodGet, h.path("clusters", name), nil, c)
}

func (h *fleetHost) until(t *testing.T, name, what string, holds func(*v1alpha1.Cluster) bool) (c *v1alpha1.Cluster) {
	t.Helper()
	harness.Eventually(t, "cluster "+name+" "+what, func() bool {
		var err error
		c, err = h.get(t, name)
		return err == nil && holds(c)
	})
	return c
}

func asleep(c *v1alpha1.Cluster) bool { return c.Status.Phase == v1alpha1.PhaseAsleep }

func (h *fleetHost) untilGone(t *testing.T, name string) {
	t.Helper()
	harness.Eventually(t, "cluster "+name+" is gone", func() bool {
		_, err := h.get(t, name)
		return apierrors.IsNotFound(err)
	})
}

// given returns the configuration in the answer to a POST of a subresource.
func (h *fleetHost) given(t *testing.T, as kubernetes.Interface, path string) (*rest.Config, v1alpha1.CredentialsStatus, error) {
	t.Helper()
	credentials := v1alpha1.Credentials{}
	if err := h.raw(t, as, http.MethodPost, path, "{}", &credentials); err != nil {
		return nil, credentials.Status, err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(credentials.Status.Kubeconfig))
	harness.Must(t, err)
	return config, credentials.Status, nil
}

// admin returns a client of an administrator of a cluster.
func (h *fleetHost) admin(t *testing.T, name string) kubernetes.Interface {
	t.Helper()
	config, _, err := h.given(t, h.kube, h.path("clusters", name, "kubeconfig"))
	harness.Must(t, err)
	return unlimited(t, config)
}

func keep(t *testing.T, in kubernetes.Interface, name string) {
	t.Helper()
	_, err := in.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	harness.Must(t, err)
}

func has(t *testing.T, in kubernetes.Interface, name string) error {
	t.Helper()
	_, err := in.CoreV1().ConfigMaps("default").Get(t.Context(), name, metav1.GetOptions{})
	return err
}

// happened waits for an Event about a Cluster.
func (h *fleetHost) happened(t *testing.T, name, reason string) {
	t.Helper()
	harness.Eventually(t, "the Event "+reason, func() bool {
		events, err := h.kube.CoreV1().Events(h.namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + name + ",reason=" + reason})
		harness.Must(t, err)
		return len(events.Items) > 0
	})
}

// allow lets a user do something with resources of the fleet in the namespace.
func (h *fleetHost) allow(t *testing.T, user string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	for i := range rules {
		rules[i].APIGroups = []string{"fleet.sqube.io"}
	}
	role, err := h.kube.RbacV1().Roles(h.namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{GenerateName: user + "-"}, Rules: rules}, metav1.CreateOptions{})
	harness.Must(t, err)
	_, err = h.kube.RbacV1().RoleBindings(h.namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	}, metav1.CreateOptions{})
	harness.Must(t, err)
}

// TestClusterLife tests what becomes of clusters: how they are made, sleep, wake up, are claimed, end and come back.
func TestClusterLife(t *testing.T) {
	t.Parallel()
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		t.Parallel()
		h := startFleetHost(t, engine)
		t.Run("together", func(t *testing.T) {
			for name, test := range map[string]func(*testing.T, *fleetHost){
				"made": testMade, "undone": testUndone, "ttl": testTTL, "pool": testPool, "fork": testForkRights, "quota": testQuota,
				"administrators": testAdministrators, "clock": testClock, "watch": testIdleWatch, "namespace": testNamespaceEnds,
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(t, h.in(t, name))
				})
			}
		})
		t.Run("killed", func(t *testing.T) { testKilled(t, h.in(t, "killed")) })
	})
}

func testMade(t *testing.T, h *fleetHost) {
	c := h.made(t, "a", `{"sleep": {"after": "1s"}}`)
	if c.Status.URL != h.URL+"/clusters/made/a" || len(c.Status.CABundle) == 0 || c.Annotations[v1alpha1.DatabaseAnnotation] != c.Status.Database {
		t.Errorf("the status is %+v", c.Status)
	}
	h.happened(t, "a", "Created")
	inside := h.admin(t, "a")
	keep(t, inside, "one")
	c = h.until(t, "a", "falls asleep", func(c *v1alpha1.Cluster) bool { return asleep(c) && c.Status.Wakes == 1 })
	if s := c.Status; s.Objects == 0 || s.Bytes == 0 || s.Size == "" || s.ResourceVersion == "" || s.LastRequest == nil {
		t.Errorf("asleep, the status is %+v", s)
	}
	harness.Must(t, has(t, inside, "one"))
	h.until(t, "a", "has woken up twice", func(c *v1alpha1.Cluster) bool { return c.Status.Wakes == 2 })

	harness.Must(t, h.raw(t, h.kube, http.MethodPatch, h.path("clusters", "a"),
		`{"metadata": {"annotations": {"fleet.sqube.io/database": "other"}, "labels": {"fleet.sqube.io/pool": "x"}, "finalizers": null}}`, c))
	if c.Annotations[v1alpha1.DatabaseAnnotation] != c.Status.Database || c.Labels[v1alpha1.PoolLabel] != "" || len(c.Finalizers) != 1 {
		t.Errorf("a user changed what the server sets: %+v", c.ObjectMeta)
	}
	err := h.raw(t, h.kube, http.MethodPatch, h.path("clusters", "a"), `{"spec": {"from": {"backup": "/etc"}}}`, nil)
	if !apierrors.IsInvalid(err) {
		t.Errorf("spec.from was changed: %v", err)
	}
	// Other controllers need a restart: the service account of a new namespace comes from one.
	harness.Must(t, h.raw(t, h.kube, http.MethodPatch, h.path("clusters", "a"), `{"spec": {"controllers": "None", "sleep": {"after": "0s"}}}`, nil))
	h.until(t, "a", "restarts and stays awake", func(c *v1alpha1.Cluster) bool { return c.Status.Wakes >= 3 && c.Status.Phase == v1alpha1.PhaseAwake })
}

func testUndone(t *testing.T, h *fleetHost) {
	h.made(t, "a", `{}`)
	inside := h.admin(t, "a")
	keep(t, inside, "one")
	c, err := h.get(t, "a")
	harness.Must(t, err)
	harness.Must(t, h.raw(t, h.kube, http.MethodDelete, h.path("clusters", "a"), nil, nil))
	h.untilGone(t, "a")
	h.happened(t, "a", "Deleted")
	if err := has(t, inside, "one"); err == nil {
		t.Error("a deleted cluster answers")
	}

	// Only a Cluster of the same name gets the database.
	again := func(name string) string {
		return fmt.Sprintf(`{"apiVersion": "fleet.sqube.io/v1alpha1", "kind": "Cluster", "metadata": {"name": %q, "annotations": {"fleet.sqube.io/database": %q}}}`, name, c.Status.Database)
	}
	other := &v1alpha1.Cluster{}
	harness.Must(t, h.raw(t, h.kube, http.MethodPost, h.path("clusters"), again("b"), other))
	if other.Annotations[v1alpha1.DatabaseAnnotation] == c.Status.Database {
		t.Error("another cluster got the database")
	}
	_, log, code := sqube.Run(t, []string{"undo", "cluster", "a", "-n", h.namespace, "--kubeconfig", h.Kubeconfig, "--before", c.ResourceVersion, "--apply"})
	if code != 0 {
		// Later changes of the object are the server's; the last state before the deletion is as good.
		t.Log(log)
		harness.Must(t, h.raw(t, h.kube, http.MethodPost, h.path("clusters"), again("a"), nil))
	}
	h.happened(t, "a", "Restored")
	harness.Must(t, has(t, inside, "one")) // by the credentials from before

	// Without a time to bring it back, nothing is left of it.
	c = h.made(t, "c", `{"keepDeleted": "0s"}`)
	keep(t, h.admin(t, "c"), "one")
	harness.Must(t, h.raw(t, h.kube, http.MethodDelete, h.path("clusters", "c"), nil, nil))
	h.untilGone(t, "c")
	text := fmt.Sprintf(`{"apiVersion": "fleet.sqube.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "c", "annotations": {"fleet.sqube.io/database": %q}}}`, c.Status.Database)
	harness.Must(t, h.raw(t, h.kube, http.MethodPost, h.path("clusters"), text, nil))
	if err := has(t, h.admin(t, "c"), "one"); !apierrors.IsNotFound(err) {
		t.Errorf("a cluster that was removed for good is back: %v", err)
	}
}

func testTTL(t *testing.T, h *fleetHost) {
	h.made(t, "short", `{"ttl": "4s"}`)
	h.happened(t, "short", "Expiring")
	h.untilGone(t, "short")
	h.happened(t, "short", "Expired")
	c := h.made(t, "long", `{"ttl": "240h"}`)
	if want := c.CreationTimestamp.Add(240 * time.Hour); c.Status.Expires == nil || !c.Status.Expires.Time.Equal(want) {
		t.Errorf("it expires at %v, want %s", c.Status.Expires, want)
	}
	harness.Must(t, h.raw(t, h.kube, http.MethodPatch, h.path("clusters", "long"), `{"spec": {"ttl": null}}`, nil))
	h.until(t, "long", "does not expire", func(c *v1alpha1.Cluster) bool { return c.Status.Expires == nil })
}

func testQuota(t *testing.T, h *fleetHost) {
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "clusters"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{}}}
	harness.Must(t, json.Unmarshal([]byte(`{"metadata": {"name": "clusters"}, "spec": {"hard": {"count/clusters.fleet.sqube.io": "1"}}}`), quota))
	_, err := h.kube.CoreV1().ResourceQuotas(h.namespace).Create(t.Context(), quota, metav1.CreateOptions{})
	harness.Must(t, err)
	h.made(t, "a", `{}`)
	harness.Eventually(t, "the quota is counted", func() bool {
		q, err := h.kube.CoreV1().ResourceQuotas(h.namespace).Get(t.Context(), "clusters", metav1.GetOptions{})
		used := q.Status.Used["count/clusters.fleet.sqube.io"]
		return err == nil && used.Value() == 1
	})
	if err := h.create(t, h.kube, "b", `{}`); !apierrors.IsForbidden(err) {
		t.Errorf("a second cluster: %v", err)
	}
}

func testForkRights(t *testing.T, h *fleetHost) {
	secret := h.in(t, "fork-secret")
	secret.made(t, "original", `{}`)
	keep(t, secret.admin(t, "original"), "one")
	h.allow(t, "dev", rbacv1.PolicyRule{Resources: []string{"clusters", "clusterpools"}, Verbs: []string{"create"}})
	dev := h.as(t, "dev")
	const spec = `{"from": {"cluster": {"namespace": "fork-secret", "name": "original"}}}`
	pool := fmt.Sprintf(`{"apiVersion": "fleet.sqube.io/v1alpha1", "kind": "ClusterPool", "metadata": {"name": "pool"}, "spec": {"replicas": 0, "template": {"spec": %s}}}`, spec)
	for what, err := range map[string]error{
		"forks another's cluster": h.create(t, dev, "fork", spec), "a pool of forks": h.raw(t, dev, http.MethodPost, h.path("clusterpools"), pool, nil),
		"restores a backup": h.create(t, dev, "fork", `{"from": {"backup": "/tmp/backup"}}`),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	secret.allow(t, "dev", rbacv1.PolicyRule{Resources: []string{"clusters"}, ResourceNames: []string{"original"}, Verbs: []string{"fork"}})
	harness.Eventually(t, "dev may fork", func() bool { return h.create(t, dev, "fork", spec) == nil })
	c := h.until(t, "fork", "is made", func(c *v1alpha1.Cluster) bool { return c.Status.Database != "" })
	if c.Status.ForkedAt == "" {
		t.Error("the status does not say when it was forked")
	}
	harness.Must(t, has(t, h.admin(t, "fork"), "one"))
}

func testAdministrators(t *testing.T, h *fleetHost) {
	alice := `{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "alice"}`
	c := h.made(t, "a", `{"administrators": [`+alice+`]}`)
	text, log, code := sqube.Run(t, []string{"kubeconfig", "--data-dir", h.DataDir, "--user", "alice"})
	if code != 0 {
		t.Fatal(log)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(text))
	harness.Must(t, err)
	config.Host = c.Status.URL
	inside := unlimited(t, config)
	keep(t, inside, "one")
	harness.Must(t, h.raw(t, h.kube, http.MethodPatch, h.path("clusters", "a"), `{"spec": {"administrators": []}}`, nil))
	harness.Eventually(t, "alice is no administrator any more", func() bool { return apierrors.IsForbidden(has(t, inside, "one")) })
}

func testClock(t *testing.T, h *fleetHost) {
	h.made(t, "a", `{"controllers": "All", "sleep": {"after": "1s"}}`)
	inside := h.admin(t, "a")
	secrets := inside.CoreV1().Secrets(metav1.NamespaceSystem)
	ends := time.Now().Add(12 * time.Second)
	_, err := secrets.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-abcdef"}, Type: "bootstrap.kubernetes.io/token",
		StringData: map[string]string{"token-id": "abcdef", "token-secret": "0123456789abcdef", "expiration": ends.UTC().Format(time.RFC3339)},
	}, metav1.CreateOptions{})
	harness.Must(t, err)
	c := h.until(t, "a", "falls asleep", func(c *v1alpha1.Cluster) bool { return asleep(c) && c.Status.NextWake != nil })
	if c.Status.NextWake.After(ends) {
		t.Errorf("it wakes up by itself at %s, not at %s", c.Status.NextWake, ends)
	}
	h.until(t, "a", "wakes up by itself and sleeps again", func(now *v1alpha1.Cluster) bool { return asleep(now) && now.Status.Wakes > c.Status.Wakes })
	if _, err := secrets.Get(t.Context(), "bootstrap-token-abcdef", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the token that has ended is there: %v", err)
	}
}

// testIdleWatch checks that a watch that a sleep has ended does not wake the cluster, and gets what happens later.
func testIdleWatch(t *testing.T, h *fleetHost) {
	h.made(t, "a", `{"sleep": {"after": "2s"}}`)
	config, _, err := h.given(t, h.kube, h.path("clusters", "a", "kubeconfig"))
	harness.Must(t, err)
	inside := unlimited(t, config)
	keep(t, inside, "one")
	watch := func(version string) io.ReadCloser {
		body, err := inside.Discovery().RESTClient().Get().AbsPath("/api/v1/namespaces/default/configmaps").
			Param("watch", "true").Param("resourceVersion", version).Stream(t.Context())
		harness.Must(t, err)
		return body
	}
	harness.Eventually(t, "the server has made its own", func() bool { return has(t, inside, "kube-root-ca.crt") == nil })
	h.until(t, "a", "falls asleep", asleep)
	list, err := inside.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	harness.Must(t, err)
	version := list.ResourceVersion
	open := watch(version)
	c := h.until(t, "a", "falls asleep again", func(c *v1alpha1.Cluster) bool { return asleep(c) && c.Status.Wakes == 2 })
	if _, err := io.ReadAll(open); err != nil { // as at a server's restart
		t.Log(err)
	}
	got := make(chan string, 1)
	go func() {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		body, err := inside.Discovery().RESTClient().Get().AbsPath("/api/v1/namespaces/default/configmaps").
			Param("watch", "true").Param("resourceVersion", c.Status.ResourceVersion).Stream(ctx) // as after a bookmark
		if err != nil {
			got <- err.Error()
			return
		}
		event := struct{ Object corev1.ConfigMap }{}
		err = json.NewDecoder(body).Decode(&event)
		got <- fmt.Sprint(event.Object.Name, err)
	}()
	// Another cluster, made and asleep meanwhile, shows that time has passed for this one too.
	h.made(t, "b", `{"sleep": {"after": "1s"}}`)
	harness.Must(t, h.raw(t, h.kube, http.MethodPost, h.path("clusters", "b", "wake"), "{}", nil))
	h.until(t, "b", "falls asleep", func(c *v1alpha1.Cluster) bool { return asleep(c) && c.Status.Wakes > 0 })
	now, err := h.get(t, "a")
	harness.Must(t, err)
	if now.Status.Wakes != c.Status.Wakes || !asleep(now) {
		t.Errorf("the watch woke the cluster: %s, woken up %d times, before %d", now.Status.Phase, now.Status.Wakes, c.Status.Wakes)
	}
	keep(t, inside, "two")
	if name := <-got; name != "two<nil>" {
		t.Errorf("the watch got %s", name)
	}
}

func testNamespaceEnds(t *testing.T, h *fleetHost) {
	h.made(t, "a", `{}`)
	harness.Must(t, h.raw(t, h.kube, http.MethodPost, h.path("clusters", "a", "wake"), "{}", nil))
	h.made(t, "b", `{}`)
	harness.Must(t, h.kube.CoreV1().Namespaces().Delete(t.Context(), h.namespace, metav1.DeleteOptions{}))
	harness.Eventually(t, "the namespace is gone", func() bool {
		_, err := h.kube.CoreV1().Namespaces().Get(t.Context(), h.namespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// testKilled kills the server while clusters are awake, are made and are claimed.
func testKilled(t *testing.T, h *fleetHost) {
	h.made(t, "a", `{}`)
	inside := h.admin(t, "a")
	keep(t, inside, "one")
	for i := range 10 {
		harness.Must(t, h.create(t, h.kube, fmt.Sprint("new-", i), `{}`))
	}
	harness.Must(t, h.raw(t, h.kube, http.MethodDelete, h.path("clusters", "new-0"), nil, nil))
	h.Kill(t)
	h.Start(t)
	harness.Eventually(t, "the cluster answers", func() bool { return has(t, inside, "one") == nil })
	for i := range 9 {
		h.until(t, fmt.Sprint("new-", i+1), "is ready", func(c *v1alpha1.Cluster) bool {
			return apimeta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionReady)
		})
	}
	h.untilGone(t, "new-0")
}
