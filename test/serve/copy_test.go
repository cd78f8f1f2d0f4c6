package serve

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestCopy copies a cluster through its API, as an administrator and as a user who may read little of it.
func TestCopy(t *testing.T) {
	t.Parallel()
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		s := serve(t, []string{"--datastore", engine.Datastore, "--service-cluster-ip-range", "10.7.0.0/24"})
		c := client(t, s.Kubeconfig)
		for _, namespace := range []string{"shop", "other"} {
			makeNamespace(t, c, namespace)
			for _, name := range []string{"one", "two"} {
				_, err := c.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
				harness.Must(t, err)
			}
		}
		const password = "correct-horse-battery"
		_, err := c.CoreV1().Secrets("shop").Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "door", Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: password}}, StringData: map[string]string{"password": password},
		}, metav1.CreateOptions{})
		harness.Must(t, err)
		boats(t, s.Kubeconfig)

		file := filepath.Join(t.TempDir(), "copy.db")
		printed := succeeds(t, []string{"copy", "--kubeconfig", s.Kubeconfig, file})
		for _, want := range []string{"\nboats.example.com ", "\nsecrets ", ", without the values of Secrets\n"} {
			if !strings.Contains(printed, want) {
				t.Errorf("sqube copy does not print %q but\n%s", want, printed)
			}
		}
		if text, err := os.ReadFile(file); err != nil || strings.Contains(string(text), password) || strings.Contains(string(text), "Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5") {
			t.Errorf("the copy has the password (%v)", err)
		}
		isCopied(t, client(t, serveCopy(t, file).Kubeconfig), strings.Repeat("x", len(password)))
		refuses(t, "exists: give another FILE", []string{"copy", "--kubeconfig", s.Kubeconfig, file})

		// A server copies for itself, in the cluster's own range of Services.
		made := serve(t, []string{"--in-memory", "--from", "kube:"}, env("KUBECONFIG="+s.Kubeconfig))
		isCopied(t, client(t, made.Kubeconfig), strings.Repeat("x", len(password)))
		service, err := client(t, made.Kubeconfig).CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
		if err != nil || service.Spec.ClusterIP != "10.7.0.1" {
			t.Errorf("the Service of the copy is %v, %v", service, err)
		}

		whole := filepath.Join(t.TempDir(), "whole.db")
		succeeds(t, []string{"copy", "--kubeconfig", s.Kubeconfig, "--secrets", "-n", "shop", "--without", "boats.example.com", whole})
		from := serveCopy(t, whole)
		copied := client(t, from.Kubeconfig)
		door, err := copied.CoreV1().Secrets("shop").Get(t.Context(), "door", metav1.GetOptions{})
		if err != nil || string(door.Data["password"]) != password {
			t.Errorf("with --secrets, the password is %v, %v", door, err)
		}
		if all, err := copied.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{}); err != nil || count(all, "other") != 0 || count(all, "shop") < 2 {
			t.Errorf("in a copy of one namespace: %v, %v", all, err)
		}
		if _, err := copied.CoreV1().Namespaces().Get(t.Context(), "other", metav1.GetOptions{}); err == nil {
			t.Error("a copy of one namespace has another one")
		}
		copiesWhatItMay(t, s, c)
	})
}

// copiesWhatItMay copies as a user who may list the ConfigMaps of a namespace.
func copiesWhatItMay(t *testing.T, s *sqube.Server, c kubernetes.Interface) {
	t.Helper()
	_, err := c.RbacV1().Roles("shop").Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}}},
	}, metav1.CreateOptions{})
	harness.Must(t, err)
	_, err = c.RbacV1().RoleBindings("shop").Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "reader"}},
	}, metav1.CreateOptions{})
	harness.Must(t, err)
	reader := (&undone{kubeconfig: s.Kubeconfig}).as(t, "reader")
	var printed string
	file := filepath.Join(t.TempDir(), "copy.db")
	harness.Retry(t, "its role is known", func() error {
		stdout, stderr, code := sqube.Run(t, []string{"copy", "--kubeconfig", reader, "-n", "shop", file})
		if printed = stdout; code != 0 || !strings.Contains(stdout, "\nconfigmaps ") {
			_ = os.Remove(file) // there may be none
			return fmt.Errorf("%s%s", stdout, stderr)
		}
		return nil
	})
	if !regexp.MustCompile(`\nsecrets in shop +- +- +secrets is forbidden: `).MatchString(printed) || !strings.Contains(printed, " holds 3 objects") { // with kube-root-ca.crt
		t.Errorf("as a user who may read little, it prints\n%s", printed)
	}
}

// isCopied looks for what TestCopy has made, with that password.
func isCopied(t *testing.T, c kubernetes.Interface, password string) {
	t.Helper()
	door, err := c.CoreV1().Secrets("shop").Get(t.Context(), "door", metav1.GetOptions{})
	if err != nil || string(door.Data["password"]) != password || len(door.Annotations) > 0 {
		t.Errorf("in the copy, the Secret is %v, %v", door, err)
	}
	all, err := c.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{})
	if err != nil || count(all, "other") < 2 || count(all, "shop") < 2 {
		t.Errorf("in the copy, the ConfigMaps are %v, %v", all, err)
	}
	if text, err := c.CoreV1().RESTClient().Get().AbsPath("/apis/example.com/v1/namespaces/default/boats/one").DoRaw(t.Context()); err != nil {
		t.Errorf("in the copy, the custom resource is %s, %v", text, err)
	}
}

func count(all *corev1.ConfigMapList, namespace string) (n int) {
	for _, c := range all.Items {
		if c.Namespace == namespace {
			n++
		}
	}
	return n
}

// boats defines a custom resource and makes an object of it.
func boats(t *testing.T, kubeconfig string) {
	t.Helper()
	definition := `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: boats.example.com}, spec: {group: example.com,
		scope: Namespaced, names: {plural: boats, kind: Boat}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}`
	for _, object := range []string{definition, `{apiVersion: example.com/v1, kind: Boat, metadata: {name: one, namespace: default}}`} {
		harness.Retry(t, "it is created", func() error {
			text, err := kubectl(t, kubeconfig, object, "create", "-f", "-")
			if err != nil {
				return errors.New(text)
			}
			return nil
		})
	}
}
