package serve

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/test/harness"
)

// authored is the audit id that two requests of prepareAuthors choose.
const authored = "the-same-for-two"

// prepareAuthors has the administrator write in the name of jane, by a client that chooses its audit id, and
// the field manager of undos.
func (f *history) prepareAuthors(t *testing.T) {
	config := rest.CopyConfig(f.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "jane", Groups: []string{"system:masters"}}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			r = r.Clone(r.Context())
			r.Header.Set("Audit-ID", authored)
			return next.RoundTrip(r)
		})
	})
	maps := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("bank")
	_, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "lent"}}, metav1.CreateOptions{FieldManager: "lender"})
	harness.Must(t, err)
	_, err = maps.Patch(t.Context(), "lent", types.MergePatchType, []byte(`{"data":{"color":"red"}}`), metav1.PatchOptions{FieldManager: "sqube-undo"})
	harness.Must(t, err)
}

// authors looks for both who wrote and in whose name, wherever a change is shown or selected.
func (f *history) authors(t *testing.T) {
	list, err := f.changes("", "bank").List(t.Context(), metav1.ListOptions{FieldSelector: "name=lent"})
	harness.Must(t, err)
	for _, c := range list.Items {
		user, impersonated, credential, id := c.Object["user"], c.Object["impersonatedUser"], fmt.Sprint(c.Object["credentialID"]), c.Object["auditID"]
		if user != "kubernetes-admin" || impersonated != "jane" || !strings.HasPrefix(credential, "X509SHA256=") || id != "client:"+authored {
			t.Errorf("%s by %v as %v with %s in request %v", c.Object["operation"], user, impersonated, credential, id)
		}
	}
	for selector, want := range map[string]int{
		"user=kubernetes-admin": 2, "user=jane": 2, "user!=jane": 0, "user=joe": 0, "user!=joe": 2,
		"impersonatedUser=jane": 2, "impersonatedUser=kubernetes-admin": 0, "impersonatedUser!=jane": 0, "impersonatedUser=": 0,
	} {
		if got := f.names(t, "", "bank", "name=lent,"+selector); len(got) != want {
			t.Errorf("%s selects %q, want %d changes", selector, got, want)
		}
	}
	if got := f.names(t, "", "bank", "name=settings,impersonatedUser="); len(got) != 2 {
		t.Errorf("nobody was impersonated in %q, want 2 changes", got)
	}
	kubeconfig := []string{"--kubeconfig", f.kubeconfig}
	for command, want := range map[string]string{
		"changes -n bank --impersonated-user jane":                          "kubernetes-admin as jane",
		"undo -n bank --user jane --resources configmaps":                   "by kubernetes-admin as jane",
		"undo -n bank --impersonated-user jane":                             "by kubernetes-admin as jane with client:sqube-undo",
		"undo -n bank --audit-id client:" + authored:                        "by kubernetes-admin as jane",
		"undo -n bank --impersonated-user jane --user joe":                  "There is nothing to undo",
		"undo -n bank --audit-id " + authored + " --impersonated-user jane": "There is nothing to undo",
	} {
		if out := succeeds(t, append(strings.Fields(command), kubeconfig...)); !strings.Contains(out, want) {
			t.Errorf("sqube %s prints\n%s", command, out)
		}
	}
}

// databaseKnowsAuthors reads authors without a server.
func (f *history) databaseKnowsAuthors(t *testing.T, database string) {
	var versions []struct{ User, ImpersonatedUser string }
	harness.Must(t, json.Unmarshal([]byte(succeeds(t, []string{"history", "configmap/lent", "-n", "bank", "-o", "json", "--user", "jane", "--datastore", database})), &versions))
	want := struct{ User, ImpersonatedUser string }{"kubernetes-admin", "jane"}
	if len(versions) != 2 || !slices.Contains(versions, want) || versions[0] != versions[1] {
		t.Errorf("sqube history has the authors %+v", versions)
	}
}
