package fleet

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/test/harness"
)

// TestStrangers sends requests of strangers, which must not wake a cluster, or tell whether there is one.
func TestStrangers(t *testing.T) {
	h := startHosting(t)
	for _, name := range []string{"new", "asleep", "open"} {
		h.create(t, name, fmt.Sprintf(`{"anonymous": %t}`, name == "open"))
	}
	inside := newKube(t, h.admin(t, "asleep"))
	accepted := bearer("a service account", serviceAccount(t, inside, "robot"))
	h.sleep(t, "asleep")
	wakes := h.status(t, "asleep")["wakes"]

	forged := strings.Split(accepted.token, ".")
	forged[2] = strings.Repeat("A", len(forged[2]))
	for _, who := range []*somebody{bearer("nobody", ""), bearer("wrong token", "wrong"), bearer("forged token", strings.Join(forged, ".")), stranger(t)} {
		for _, path := range []string{"/version", "/healthz", "/api/v1/namespaces/kube-public/configmaps/cluster-info", "/openid/v1/jwks", "/api/v1/pods?watch=true"} {
			var missing string
			for _, name := range []string{"missing", "new", "asleep"} {
				code, text, header := who.request(t, http.MethodGet, h.at(name)+path, nil)
				header.Del("Audit-Id")
				header.Del("Date")
				got := fmt.Sprint(code, header, text)
				if missing == "" {
					missing = got
				}
				if code != http.StatusUnauthorized || got != missing {
					t.Errorf("%s gets of cluster %s at %s\n%s\nand of one that does not exist\n%s", who.name, name, path, got, missing)
				}
			}
		}
	}
	for _, name := range []string{"new", "asleep"} {
		if s := h.status(t, name); s["phase"] != "Asleep" || name == "asleep" && s["wakes"] != wakes || name == "new" && s["wakes"] != nil {
			t.Errorf("strangers have woken cluster %s: %v", name, s)
		}
	}

	nobody := bearer("nobody", "")
	for path, want := range map[string]int{"/version": http.StatusOK, "/api/v1/pods": http.StatusForbidden} {
		if code, text, _ := nobody.request(t, http.MethodGet, h.at("open")+path, nil); code != want {
			t.Errorf("spec.anonymous: %s gives %d %s", path, code, text)
		}
	}
	if code, text, _ := accepted.request(t, http.MethodGet, h.at("asleep")+"/api/v1/secrets", nil); code != http.StatusOK {
		t.Errorf("a service account does not wake its cluster: %d %s", code, text)
	}
	h.closed(t, inside.Discovery().RESTClient())
	h.paths(t)
}

// sleep puts a cluster to sleep.
func (h *hosting) sleep(t *testing.T, name string) {
	t.Helper()
	_, err := h.kube.Discovery().RESTClient().Post().AbsPath(clusters, name, "sleep").DoRaw(t.Context())
	harness.Must(t, err)
	harness.Eventually(t, name+" sleeps", func() bool { return h.status(t, name)["phase"] == "Asleep" })
}

// closed requests what tells of the whole process.
func (h *hosting) closed(t *testing.T, client rest.Interface) {
	t.Helper()
	for _, path := range []string{"/metrics", "/metrics/slis", "/debug/pprof/", "/debug/pprof/heap", "/debug/flags/v", "/flagz", "/statusz", "/configz", "/mcp", "/logs/", "/clusters/team/new/version"} {
		if text, err := client.Get().AbsPath(path).DoRaw(t.Context()); !apierrors.IsNotFound(err) {
			t.Errorf("a cluster's administrator gets %s: %v %.200s", path, err, text)
		}
	}
}

// paths requests what is not quite the path of a cluster, as the administrator of the host and of a cluster.
func (h *hosting) paths(t *testing.T) {
	t.Helper()
	for _, one := range []*somebody{with(t, "host", h.config), with(t, "cluster", h.admin(t, "asleep"))} {
		for _, path := range []string{
			"/clusters", "/clusters/", "/clusters/team", "/clusters/team/", "/clusters//asleep/api/v1/namespaces", "//clusters/team/asleep/api/v1/namespaces", "/clusters/team%2Fasleep/api/v1/namespaces",
			"/clusters/team/asleep%2Fapi/v1/namespaces", "/clusters/../api/v1/namespaces", "/clusters/team/../../api/v1/namespaces", "/clusters/team/asleep/../new/api/v1/namespaces",
			"/clusters/team/asleep/..%2Fnew/api/v1/namespaces", "/clusters/team/asleep/%2e%2e/%2e%2e/%2e%2e/api/v1/namespaces", "/clusters/TEAM/asleep/api/v1/namespaces", "/Clusters/team/asleep/api/v1/namespaces",
			"/clusters/team/asleep//api/v1/namespaces", "/clusters/team/asleep/clusters/team/new/api/v1/namespaces", "/clusters/team/asl%65ep/api/v1/namespaces",
		} {
			code, text, _ := one.request(t, http.MethodGet, h.URL+path, nil)
			if code != http.StatusNotFound && code != http.StatusUnauthorized && code != http.StatusForbidden {
				t.Errorf("%s gets %d for %s: %.200s", one.name, code, path, text)
			}
		}
	}
}

// TestPasses looks at whom a cluster sees with the credentials that the host gives, and at when they end.
func TestPasses(t *testing.T) {
	dir := t.TempDir()
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	harness.Must(t, os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata, users: [alice]}]\n"), 0o600))
	h := startHosting(t, "--audit-policy-file", policy, "--audit-log-path", log)
	h.create(t, "a", `{}`)
	alice := h.user(t, "alice", "developers")
	kube := newKube(t, alice)
	if _, err := credentials(t, kube, "a", "{}"); !apierrors.IsForbidden(err) {
		t.Fatalf("a user without rights gets credentials: %v", err)
	}
	roles := h.kube.RbacV1().Roles(team)
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "user"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"fleet.sqube.io"}, Resources: []string{"clusters/kubeconfig"}, Verbs: []string{"create"}},
	}}
	role, err := roles.Create(t.Context(), role, metav1.CreateOptions{})
	harness.Must(t, err)
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "user"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "user"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "alice"}}}
	_, err = h.kube.RbacV1().RoleBindings(team).Create(t.Context(), binding, metav1.CreateOptions{})
	harness.Must(t, err)

	harness.Eventually(t, "alice gets credentials of her own", func() bool { _, err := credentials(t, kube, "a", "{}"); return err == nil })
	config, err := credentials(t, kube, "a", "{}")
	harness.Must(t, err)
	if got := whoami(t, h, "a", bearer("", config.BearerToken)); got != "alice [developers system:authenticated]" {
		t.Errorf("the cluster sees %s", got)
	}
	for _, spec := range []string{`{"user": "bob"}`, `{"user": "alice", "groups": ["system:masters"]}`, `{"groups": ["system:masters"]}`, `{"user": "system:serviceaccount:default:robot"}`} {
		if _, err := credentials(t, kube, "a", spec); !apierrors.IsForbidden(err) {
			t.Errorf("alice asks for %s: %v", spec, err)
		}
	}
	role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{"fleet.sqube.io"}, Resources: []string{"clusters"}, Verbs: []string{"administer"}})
	role, err = roles.Update(t.Context(), role, metav1.UpdateOptions{})
	harness.Must(t, err)
	harness.Eventually(t, "alice is an administrator", func() bool {
		config, err = credentials(t, kube, "a", "{}")
		return err == nil && whoami(t, h, "a", bearer("", config.BearerToken)) == "alice [system:masters system:authenticated]"
	})
	bob, err := credentials(t, kube, "a", `{"user": "bob", "groups": ["testers"]}`)
	harness.Must(t, err)
	if got := whoami(t, h, "a", bearer("", bob.BearerToken)); got != "bob [testers system:authenticated]" {
		t.Errorf("the cluster sees %s", got)
	}

	harness.Eventually(t, "the host's audit log says who has requested what in the cluster", func() bool {
		text, err := os.ReadFile(log)
		return err == nil && strings.Contains(string(text), `"fleet.sqube.io/cluster":"team/a"`) && strings.Contains(string(text), `"fleet.sqube.io/holder":["alice"]`)
	})
	h.sleep(t, "a")
	role.Rules = role.Rules[:1]
	_, err = roles.Update(t.Context(), role, metav1.UpdateOptions{})
	harness.Must(t, err)
	for _, one := range []*somebody{bearer("an administrator", config.BearerToken), bearer("bob", bob.BearerToken)} {
		harness.Eventually(t, "the credentials of "+one.name+" end with the right", func() bool {
			code, _, _ := one.request(t, http.MethodGet, h.at("a")+"/version", nil)
			return code == http.StatusUnauthorized
		})
	}
}

// whoami returns whom a cluster sees.
func whoami(t *testing.T, h *hosting, name string, who *somebody) string {
	t.Helper()
	code, text, _ := who.request(t, http.MethodPost, h.at(name)+"/apis/authentication.k8s.io/v1/selfsubjectreviews", []byte(`{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}`))
	o := struct {
		Status struct {
			UserInfo struct {
				Username string
				Groups   []string
			}
		}
	}{}
	if code != http.StatusCreated {
		return fmt.Sprint(code, text)
	}
	harness.Must(t, json.Unmarshal([]byte(text), &o))
	return fmt.Sprint(o.Status.UserInfo.Username, " ", o.Status.UserInfo.Groups)
}
