package serve

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sqube/sqube/test/harness"
)

var historyBytes = regexp.MustCompile(`\nsqube_store_history_bytes .*`)

// TestNobodyErasesHistory has one tenant write more than history has room for. What another did before is there, with its values, and can be
// undone. Of what the tenant did, it is known who changed which field; lists, the log, metrics and a command say who took the room.
func TestNobodyErasesHistory(t *testing.T) {
	t.Parallel()
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		s := serve(t, append([]string{"--datastore", engine.Datastore, "--history-bytes", "1Mi"}, packing...))
		config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
		harness.Must(t, err)
		config.QPS = -1
		f := &history{kubeconfig: s.Kubeconfig, config: config, admin: kubernetes.NewForConfigOrDie(config)}
		ctx := t.Context()
		bob := f.editor(t, "shop", "bob").CoreV1().ConfigMaps("shop")
		_, err = bob.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"color": "red"}}, metav1.CreateOptions{})
		harness.Must(t, err)
		_, err = bob.Patch(ctx, "settings", types.MergePatchType, []byte(`{"data":{"color":"blue"}}`), metav1.PatchOptions{})
		harness.Must(t, err)
		harness.Must(t, bob.Delete(ctx, "settings", metav1.DeleteOptions{}))
		packed(t, s, f.admin)

		alice := f.editor(t, "tenant", "alice").CoreV1().ConfigMaps("tenant")
		_, err = alice.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "noise"}}, metav1.CreateOptions{})
		harness.Must(t, err)
		for range 40 {
			_, err = alice.Patch(ctx, "noise", types.MergePatchType, fmt.Appendf(nil, `{"data":{"noise":%q}}`, noise(t, 100_000)), metav1.PatchOptions{})
			harness.Must(t, err)
		}
		harness.Retry(t, "alice's values give way", func() error {
			packed(t, s, f.admin)
			text, err := f.admin.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
			if err == nil && strings.Contains(string(text), "\nsqube_store_history_bare_blocks 0\n") {
				err = fmt.Errorf("none has: history has the size %q", historyBytes.FindString(string(text)))
			}
			return err
		})
		if got := f.names(t, "", "shop", "name=settings,field=.data.color"); len(got) != 1 {
			t.Errorf("of what bob changed, there is %q", got)
		}
		list, err := f.changes("", "tenant").List(ctx, metav1.ListOptions{FieldSelector: "name=noise,operation=update,field=.data.noise,user=system:serviceaccount:tenant:alice"})
		harness.Must(t, err)
		given := 0
		for _, c := range list.Items {
			if c.Object["valuesGivenUp"] == true {
				given++
			}
		}
		if len(list.Items) != 40 || given == 0 {
			t.Errorf("of 40 changes of the field, %d are there, %d without their values", len(list.Items), given)
		}
		if out := succeeds(t, strings.Fields("history --kept --datastore "+engine.Datastore)); !strings.Contains(out, "system:serviceaccount:tenant:alice") || strings.Contains(out, "bob") {
			t.Errorf("sqube history --kept prints\n%s", out)
		}
		for namespace, told := range map[string]bool{"": true, "tenant": true, "shop": false} {
			page, err := f.changes("", namespace).List(ctx, metav1.ListOptions{Limit: 1})
			harness.Must(t, err)
			if kept := fmt.Sprint(page.Object["kept"]); strings.Contains(kept, "alice") != told {
				t.Errorf("a list in %q says of what is kept: %s", namespace, kept)
			}
		}
		if out := kubectlPrints(t, f.kubeconfig, "get", "changes", "-n", "tenant", "--field-selector", "operation=delete"); !strings.Contains(out, "Warning: history gave up values up to revision ") {
			t.Errorf("kubectl get changes prints\n%s", out)
		}
		succeeds(t, []string{"undo", "configmap/settings", "-n", "shop", "--apply", "--kubeconfig", f.kubeconfig})
		if again, err := bob.Get(ctx, "settings", metav1.GetOptions{}); err != nil || again.Data["color"] != "blue" {
			t.Errorf("bob's object comes back as %v, %v", again, err)
		}
	})
}

// editor returns a client of a service account that may edit its namespace.
func (f *history) editor(t *testing.T, namespace, name string) kubernetes.Interface {
	t.Helper()
	ctx := t.Context()
	_, err := f.admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	harness.Must(t, err)
	_, err = f.admin.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	harness.Must(t, err)
	_, err = f.admin.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "edit"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: name}},
	}, metav1.CreateOptions{})
	harness.Must(t, err)
	token, err := f.admin.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	harness.Must(t, err)
	config := rest.AnonymousClientConfig(f.config)
	config.BearerToken, config.QPS = token.Status.Token, -1
	c := kubernetes.NewForConfigOrDie(config)
	harness.Retry(t, name+" may edit", func() error {
		_, err := c.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{})
		return err
	})
	return c
}

// noise returns text that can't be compressed to less than three quarters.
func noise(t *testing.T, bytes int) string {
	t.Helper()
	raw := make([]byte, bytes*3/4)
	_, err := rand.Read(raw)
	harness.Must(t, err)
	return base64.StdEncoding.EncodeToString(raw)
}
