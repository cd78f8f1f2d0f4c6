package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// mirrored is a cluster and its mirror.
type mirrored struct {
	source, mirror *sqube.Server
	there, here    kubernetes.Interface // their clients
}

// TestMirror follows a cluster, with interruptions on both sides.
func TestMirror(t *testing.T) {
	t.Parallel()
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		m := &mirrored{source: serve(t, []string{"--retention", "1s", "--compact-interval", "100ms"})}
		m.there = client(t, m.source.Kubeconfig)
		makeNamespace(t, m.there, "shop")
		makeNamespace(t, m.there, "other")
		m.put(t, "shop", "one", "a")
		const password = "correct-horse-battery"
		_, err := m.there.CoreV1().Secrets("shop").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "door"}, StringData: map[string]string{"password": password}}, metav1.CreateOptions{})
		harness.Must(t, err)
		boats(t, m.source.Kubeconfig)

		m.mirror = sqube.Start(t, sqube.Options{Command: "mirror", Datastore: engine.Datastore, Args: []string{"--kubeconfig", m.source.Kubeconfig}})
		m.here = client(t, m.mirror.Kubeconfig)
		m.begins(t, password)
		m.follows(t)
		m.definitions(t)
		m.readOnly(t)
		m.users(t)
		m.undoes(t)
		m.resumes(t)
		m.sourceRestarts(t)
		m.forgotten(t)
		m.otherClusters(t)
	})
}

// put creates or updates a ConfigMap in the cluster, and returns it.
func (m *mirrored) put(t *testing.T, namespace, name, value string) *corev1.ConfigMap {
	t.Helper()
	maps := m.there.CoreV1().ConfigMaps(namespace)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"value": value}}
	made, err := maps.Create(t.Context(), object, metav1.CreateOptions{FieldManager: "tester"})
	if apierrors.IsAlreadyExists(err) {
		made, err = maps.Patch(t.Context(), name, types.MergePatchType, fmt.Appendf(nil, `{"data":{"value":%q}}`, value), metav1.PatchOptions{FieldManager: "tester"})
	}
	harness.Must(t, err)
	return made
}

// shows waits until the mirror has a value in a ConfigMap.
func (m *mirrored) shows(t *testing.T, namespace, name, value string) {
	t.Helper()
	harness.Retry(t, fmt.Sprintf("the mirror has %s/%s with %s", namespace, name, value), func() error {
		found, err := m.here.CoreV1().ConfigMaps(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err == nil && found.Data["value"] != value {
			err = fmt.Errorf("it has %v", found.Data)
		}
		return err
	})
}

// changes lists the changes that a kubeconfig's user sees in a namespace, "" for all.
func (m *mirrored) changes(t *testing.T, kubeconfig, namespace string) []changes.Change {
	t.Helper()
	path := "/apis/history.sqube.io/v1alpha1/changes"
	if namespace != "" {
		path = "/apis/history.sqube.io/v1alpha1/namespaces/" + namespace + "/changes"
	}
	text, err := kubectl(t, kubeconfig, "", "get", "--raw", path)
	if err != nil {
		t.Fatal(text)
	}
	var list changes.ChangeList
	harness.Must(t, json.Unmarshal([]byte(text), &list))
	return list.Items
}

// history returns what happened to a ConfigMap, and the gaps, in the namespace shop: each in short.
func (m *mirrored) history(t *testing.T, name string) (happened []string, last changes.Change) {
	t.Helper()
	for _, c := range m.changes(t, m.mirror.Kubeconfig, "shop") {
		switch {
		case c.Gap != nil:
			for _, resource := range c.Gap.Resources {
				if resource == "configmaps" {
					happened = append(happened, map[bool]string{true: "lost", false: "late"}[c.Gap.Lost])
				}
			}
		case c.Object.Name == name && c.Object.Resource == "configmaps":
			text := c.Operation
			for _, f := range c.Changed {
				if f.Path == ".data.value" {
					text += " " + string(f.Old.Raw) + string(f.New.Raw)
				}
			}
			happened, last = append(happened, text), c
		}
	}
	return happened, last
}

// happened fails unless that has happened to a ConfigMap.
func (m *mirrored) happened(t *testing.T, name string, want ...string) changes.Change {
	t.Helper()
	var last changes.Change
	harness.Retry(t, "history has "+strings.Join(want, ", "), func() error {
		var got []string
		if got, last = m.history(t, name); strings.Join(got, ", ") != strings.Join(want, ", ") {
			return fmt.Errorf("it has %s", strings.Join(got, ", "))
		}
		return nil
	})
	return last
}

// begins looks for what there was before the mirror.
func (m *mirrored) begins(t *testing.T, password string) {
	t.Helper()
	m.shows(t, "shop", "one", "a")
	harness.Retry(t, "the mirror has the Secret without its value", func() error {
		door, err := m.here.CoreV1().Secrets("shop").Get(t.Context(), "door", metav1.GetOptions{})
		if err == nil && string(door.Data["password"]) != strings.Repeat("x", len(password)) {
			err = fmt.Errorf("its data are %q", door.Data)
		}
		return err
	})
	m.hasBoat(t, "boats")
	if last := m.happened(t, "one", "create"); last.User != "system:sqube:import" {
		t.Errorf("what was there before is by %q", last.User)
	}
}

func (m *mirrored) hasBoat(t *testing.T, resource string) {
	t.Helper()
	harness.Retry(t, "the mirror has the custom resource "+resource, func() error {
		return m.here.CoreV1().RESTClient().Get().AbsPath("/apis/example.com/v1/namespaces/default/" + resource + "/one").Do(t.Context()).Error()
	})
}

// follows makes changes, which history has with their managers and their resourceVersions in the cluster.
func (m *mirrored) follows(t *testing.T) {
	t.Helper()
	m.put(t, "shop", "two", "a")
	m.put(t, "shop", "two", "b")
	at := m.put(t, "shop", "two", "c")
	last := m.happened(t, "two", "create", `update "a""b"`, `update "b""c"`)
	if last.SourceRevision != at.ResourceVersion || last.User != "" || last.FieldManager != "tester" {
		t.Errorf("the change is %+v, not of %s", last, at.ResourceVersion)
	}
	harness.Must(t, m.there.CoreV1().ConfigMaps("shop").Delete(t.Context(), "two", metav1.DeleteOptions{}))
	m.happened(t, "two", "create", `update "a""b"`, `update "b""c"`, "delete")
}

// definitions makes a definition with an object, and deletes it.
func (m *mirrored) definitions(t *testing.T) {
	t.Helper()
	definition := `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: cars.example.com}, spec: {group: example.com,
		scope: Namespaced, names: {plural: cars, kind: Car}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}`
	for _, object := range []string{definition, `{apiVersion: example.com/v1, kind: Car, metadata: {name: one, namespace: default}}`} {
		harness.Retry(t, "it is created", func() error {
			text, err := kubectl(t, m.source.Kubeconfig, object, "create", "-f", "-")
			if err != nil {
				return errors.New(text)
			}
			return nil
		})
	}
	m.hasBoat(t, "cars")
	kubectlPrints(t, m.source.Kubeconfig, "delete", "crd", "cars.example.com")
	harness.Retry(t, "the mirror knows that the object is gone", func() error {
		for _, c := range m.changes(t, m.mirror.Kubeconfig, "default") {
			if c.Operation == "delete" && c.Object.Resource == "cars" {
				return nil
			}
		}
		return errors.New("there is no such change")
	})
}

// readOnly tries to change the mirror.
func (m *mirrored) readOnly(t *testing.T) {
	t.Helper()
	for _, command := range []string{"delete configmap one", "create configmap three", "label configmap one a=b", "scale --replicas 2 deployment/web"} {
		text, err := kubectl(t, m.mirror.Kubeconfig, "", append(strings.Fields(command), "-n", "shop")...)
		if want := "this is a mirror of " + m.source.URL + ", in which nothing can be changed: change it there"; err == nil || !strings.Contains(text, want) && !strings.Contains(text, "not found") {
			t.Errorf("kubectl %s prints %s", command, text)
		}
	}
	namespaces, err := m.here.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(namespaces.Items) != 6 {
		t.Errorf("the mirror has other namespaces than the cluster: %v, %v", namespaces, err)
	}
}

// users lets users of the cluster who may see one namespace look at the mirror.
func (m *mirrored) users(t *testing.T) {
	t.Helper()
	subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "reader"}, {Kind: rbacv1.ServiceAccountKind, Namespace: "shop", Name: "default"}}
	for _, role := range []*rbacv1.ClusterRole{
		{ObjectMeta: metav1.ObjectMeta{Name: "reads"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list"}},
			{APIGroups: []string{changes.GroupVersion.Group}, Resources: []string{changes.Resource}, Verbs: []string{"list"}},
		}},
	} {
		_, err := m.there.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{})
		harness.Must(t, err)
	}
	_, err := m.there.RbacV1().RoleBindings("shop").Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reads"}, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "reads"},
	}, metav1.CreateOptions{})
	harness.Must(t, err)
	m.put(t, "other", "hidden", "a")
	m.shows(t, "other", "hidden", "a")

	token, err := m.there.CoreV1().ServiceAccounts("shop").CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	harness.Must(t, err)
	theirs := (&undone{kubeconfig: m.source.Kubeconfig}).as(t, "reader")
	for who, kubeconfig := range map[string]string{
		"a certificate of the cluster": m.with(t, theirs, ""), "a certificate of the mirror": (&undone{kubeconfig: m.mirror.Kubeconfig}).as(t, "reader"),
		"a token": m.with(t, "", token.Status.Token),
	} {
		harness.Retry(t, who+" lets its user see the namespace", func() error { // once the cluster knows the role
			text, err := kubectl(t, kubeconfig, "", "get", "changes", "-n", "shop")
			if err != nil || !strings.Contains(text, "configmap/one") {
				return errors.New(text)
			}
			return nil
		})
		for _, c := range m.changes(t, kubeconfig, "shop") {
			if c.Gap == nil && (c.Namespace != "shop" || c.Object.Resource != "configmaps") {
				t.Errorf("with %s, a user sees the change %+v", who, c)
			}
		}
		for _, command := range []string{"get changes -n other", "get configmaps -n other", "get secrets -n shop", "get changes -A"} {
			if text, err := kubectl(t, kubeconfig, "", strings.Fields(command)...); err == nil || !strings.Contains(text, "Forbidden") && !strings.Contains(text, "forbidden") {
				t.Errorf("with %s, kubectl %s prints %s", who, command, text)
			}
		}
	}
	if text, err := kubectl(t, m.with(t, "", "nonsense"), "", "get", "configmaps", "-n", "shop"); err == nil || !strings.Contains(text, "Unauthorized") && !strings.Contains(text, "logged in") {
		t.Errorf("with an invalid token, kubectl prints %s", text)
	}
}

// with returns a kubeconfig of the mirror with the user of another one, or a token.
func (m *mirrored) with(t *testing.T, user, token string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(m.mirror.Kubeconfig)
	harness.Must(t, err)
	current := config.Contexts[config.CurrentContext]
	config.AuthInfos = map[string]*clientcmdapi.AuthInfo{current.AuthInfo: {Token: token}}
	if user != "" {
		theirs, err := clientcmd.LoadFromFile(user)
		harness.Must(t, err)
		config.AuthInfos[current.AuthInfo] = theirs.AuthInfos[theirs.Contexts[theirs.CurrentContext].AuthInfo]
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	harness.Must(t, clientcmd.WriteToFile(*config, file))
	harness.Must(t, os.Chmod(file, 0o600))
	return file
}

// undoes takes changes back in the cluster, as the mirror plans it.
func (m *mirrored) undoes(t *testing.T) {
	t.Helper()
	alice := (&undone{kubeconfig: m.source.Kubeconfig}).as(t, "alice", "system:masters")
	undo := func(args ...string) string {
		t.Helper()
		return succeeds(t, append([]string{"undo", "--kubeconfig", alice, "--mirror", m.mirror.URL, "--mirror-certificate-authority", filepath.Join(m.mirror.DataDir, "pki", "ca.crt"), "-n", "shop"}, args...))
	}
	m.put(t, "shop", "seven", "a")
	first := m.happened(t, "seven", "create")
	m.put(t, "shop", "seven", "b")
	m.happened(t, "seven", "create", `update "a""b"`)
	contains(t, undo("configmap", "seven", "--to", first.Name), `.data.value: "b" → "a"`, "1 to update", "nothing has been changed")
	m.shows(t, "shop", "seven", "b")
	kubectlPrints(t, m.source.Kubeconfig, "label", "configmap", "seven", "-n", "shop", "a=b") // which the mirror may not have seen yet
	contains(t, undo("--manager", "tester", "--after-revision", first.Name, "--apply"), `.data.value: "b" → "a"`, "(done)", "To take this back: sqube undo --mirror "+m.mirror.URL)
	seven, err := m.there.CoreV1().ConfigMaps("shop").Get(t.Context(), "seven", metav1.GetOptions{})
	if err != nil || seven.Data["value"] != "a" || seven.Labels["a"] != "b" {
		t.Errorf("the cluster has %v, %v", seven, err)
	}
	m.shows(t, "shop", "seven", "a")

	harness.Must(t, m.there.CoreV1().ConfigMaps("shop").Delete(t.Context(), "seven", metav1.DeleteOptions{}))
	harness.Retry(t, "the mirror knows that it is deleted", func() error {
		if _, last := m.history(t, "seven"); last.Operation != "delete" {
			return errors.New(last.Operation)
		}
		return nil
	})
	contains(t, undo("configmap", "seven", "--apply"), "create  configmap", "(done)")
	m.shows(t, "shop", "seven", "a")

	before, err := m.there.CoreV1().Secrets("shop").Patch(t.Context(), "door", types.MergePatchType, []byte(`{"stringData":{"password":"another"}}`), metav1.PatchOptions{FieldManager: "thief"})
	harness.Must(t, err)
	harness.Retry(t, "the mirror knows it", func() error {
		if printed := undo("--manager", "thief", "--since", "1h", "--apply"); !strings.Contains(printed, "the mirror does not have the values of Secrets") {
			return errors.New(printed)
		}
		return nil
	})
	if door, err := m.there.CoreV1().Secrets("shop").Get(t.Context(), "door", metav1.GetOptions{}); err != nil || door.ResourceVersion != before.ResourceVersion {
		t.Errorf("the Secret is %v, %v", door, err)
	}
	reader := (&undone{kubeconfig: m.source.Kubeconfig}).as(t, "reader")
	refuses(t, "forbidden", []string{"undo", "configmap", "seven", "-n", "shop", "--to", "1h", "--kubeconfig", reader, "--mirror", m.mirror.URL, "--mirror-certificate-authority", filepath.Join(m.mirror.DataDir, "pki", "ca.crt")})
}

// contains fails unless a text has others in it.
func contains(t *testing.T, got string, want ...string) {
	t.Helper()
	for _, text := range want {
		if !strings.Contains(got, text) {
			t.Errorf("it prints no %q, but\n%s", text, got)
		}
	}
}

// resumes kills the mirror, which then goes on where it was.
func (m *mirrored) resumes(t *testing.T) {
	t.Helper()
	m.put(t, "shop", "three", "a")
	m.happened(t, "three", "create")
	m.mirror.Kill(t)
	m.put(t, "shop", "three", "b")
	m.put(t, "shop", "three", "c")
	m.mirror.Start(t)
	m.happened(t, "three", "create", `update "a""b"`, `update "b""c"`, "late")
	m.hasBoat(t, "boats")
}

// sourceRestarts restarts the cluster.
func (m *mirrored) sourceRestarts(t *testing.T) {
	t.Helper()
	m.mirror.Stop(t)
	m.source.Kill(t)
	m.mirror.Start(t)
	m.shows(t, "shop", "three", "c") // the mirror still shows what it has
	m.source.Start(t)
	m.put(t, "shop", "three", "d")
	m.shows(t, "shop", "three", "d")
}

// forgotten stops the mirror for longer than the cluster remembers what has happened.
func (m *mirrored) forgotten(t *testing.T) {
	t.Helper()
	m.put(t, "shop", "four", "a")
	m.put(t, "shop", "five", "a")
	at := m.put(t, "shop", "six", "a")
	m.shows(t, "shop", "six", "a")
	m.mirror.Stop(t)
	m.put(t, "shop", "four", "b")
	m.put(t, "shop", "four", "c")
	harness.Must(t, m.there.CoreV1().ConfigMaps("shop").Delete(t.Context(), "five", metav1.DeleteOptions{}))
	harness.Must(t, m.there.CoreV1().ConfigMaps("shop").Delete(t.Context(), "six", metav1.DeleteOptions{}))
	again := m.put(t, "shop", "six", "a")
	harness.Retry(t, "the cluster has forgotten it", func() error {
		w, err := m.there.CoreV1().ConfigMaps("shop").Watch(t.Context(), metav1.ListOptions{ResourceVersion: at.ResourceVersion})
		if err != nil {
			if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
				return nil
			}
			return err
		}
		defer w.Stop()
		if e := <-w.ResultChan(); apierrors.IsResourceExpired(apierrors.FromObject(e.Object)) {
			return nil
		}
		m.put(t, "other", "hidden", fmt.Sprint(len(at.ResourceVersion))) // what is removed is removed after a write
		return errors.New("it still tells")
	})
	m.mirror.Start(t)
	m.shows(t, "shop", "four", "c")
	four, last := m.history(t, "four")
	contains(t, succeeds(t, []string{"undo", "configmap", "four", "-n", "shop", "--kubeconfig", m.mirror.Kubeconfig, "--before", last.Name}), "note: from 2", "the mirror has not seen what happened to configmaps", `.data.value: "c" → "a"`)
	five, _ := m.history(t, "five")
	harness.Retry(t, "the ConfigMap is another one", func() error {
		six, err := m.here.CoreV1().ConfigMaps("shop").Get(t.Context(), "six", metav1.GetOptions{})
		if err == nil && six.UID != again.UID {
			err = fmt.Errorf("it is %s", six.UID)
		}
		return err
	})
	six, _ := m.history(t, "six")
	for want, got := range map[string][]string{`create, lost, update "a""c"`: four, "create, lost, delete": five, "create, lost, delete, create": six} {
		if text := strings.Join(got, ", "); !strings.HasSuffix(text, want) {
			t.Errorf("history has %s, not %s", text, want)
		}
	}
}

// otherClusters refuses the databases of others.
func (m *mirrored) otherClusters(t *testing.T) {
	t.Helper()
	m.mirror.Stop(t)
	other := serve(t, nil)
	_, stderr, code := sqube.Run(t, []string{
		"mirror", "--kubeconfig", other.Kubeconfig, "--data-dir", m.mirror.DataDir, "--datastore", m.mirror.Datastore, "--bind-address", "127.0.0.1", "--secure-port", freePort(t),
	})
	if want := "the database mirrors another cluster than " + other.URL + ", which was at " + m.source.URL; code == 0 || !strings.Contains(stderr, want) {
		t.Errorf("with the database of another cluster, it ends with code %d and %s", code, stderr)
	}
	other.Stop(t)
	refuses(t, "is not one of a mirror", []string{
		"mirror", "--kubeconfig", m.source.Kubeconfig, "--data-dir", other.DataDir, "--bind-address", "127.0.0.1", "--secure-port", freePort(t),
	})
}
