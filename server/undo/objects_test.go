package undo_test

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/sqube/sqube/server/undo"
)

// kept are objects by which a test sees whether all came back.
type kept struct {
	service  *corev1.Service
	secret   *corev1.Secret
	owned    *corev1.ConfigMap
	ownerUID types.UID
}

// fill makes 500 objects.
func fill(t *testing.T, c *kubernetes.Clientset, ns string) *kept {
	t.Helper()
	k := &kept{}
	var err error
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	k.service, err = c.CoreV1().Services(ns).Create(t.Context(), &corev1.Service{ObjectMeta: meta("web"), Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeNodePort, Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}},
	}}, metav1.CreateOptions{})
	must(t, err)
	web, err := c.AppsV1().Deployments(ns).Create(t.Context(), deployment("web"), metav1.CreateOptions{})
	must(t, err)
	controller := true
	set := &appsv1.ReplicaSet{ObjectMeta: meta("web-1"), Spec: appsv1.ReplicaSetSpec{Selector: web.Spec.Selector, Template: web.Spec.Template}}
	set.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: web.UID, Controller: &controller}}
	set, err = c.AppsV1().ReplicaSets(ns).Create(t.Context(), set, metav1.CreateOptions{})
	must(t, err)
	made := &corev1.Pod{ObjectMeta: meta("web-1-a"), Spec: pod("app:1")}
	made.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: set.Name, UID: set.UID, Controller: &controller}}
	_, err = c.CoreV1().Pods(ns).Create(t.Context(), made, metav1.CreateOptions{})
	must(t, err)
	_, err = c.CoreV1().ServiceAccounts(ns).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: meta("robot")}, metav1.CreateOptions{})
	must(t, err)
	_, err = c.RbacV1().Roles(ns).Create(t.Context(), &rbacv1.Role{ObjectMeta: meta("reader"), Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}}}, metav1.CreateOptions{})
	must(t, err)
	_, err = c.RbacV1().RoleBindings(ns).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta("reader"), RoleRef: rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: "reader"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "robot", Namespace: ns}},
	}, metav1.CreateOptions{})
	must(t, err)
	_, err = c.CoreV1().PersistentVolumeClaims(ns).Create(t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: meta("data"), Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeName: "gone",
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}, metav1.CreateOptions{})
	must(t, err)
	alone := &corev1.Pod{ObjectMeta: meta("alone"), Spec: pod("app:1")}
	alone.Spec.ServiceAccountName = "robot"
	_, err = c.CoreV1().Pods(ns).Create(t.Context(), alone, metav1.CreateOptions{})
	must(t, err)
	for i := range 10 {
		s, err := c.CoreV1().Secrets(ns).Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("sh.helm.release.v1.app.v%d", i), Labels: map[string]string{"owner": "helm"}},
			Type:       "helm.sh/release.v1", Data: map[string][]byte{"release": []byte(strings.Repeat("H4sI", 1000))},
		}, metav1.CreateOptions{})
		must(t, err)
		k.secret = s
	}
	owner, err := c.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: meta("owner")}, metav1.CreateOptions{})
	must(t, err)
	k.ownerUID = owner.UID
	k.owned = &corev1.ConfigMap{ObjectMeta: meta("a-owned")}
	k.owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.UID}}
	k.owned, err = c.CoreV1().ConfigMaps(ns).Create(t.Context(), k.owned, metav1.CreateOptions{})
	must(t, err)
	each(478, func(i int) {
		_, err := c.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: meta(fmt.Sprintf("c%d", i)), Data: map[string]string{"a": fmt.Sprint(i)}}, metav1.CreateOptions{})
		if err != nil {
			t.Error(err)
		}
	})
	return k
}

// each calls do with 0 to n-1, some at once.
func each(n int, do func(i int)) {
	var all sync.WaitGroup
	for first := range 8 {
		all.Go(func() {
			for i := first; i < n; i += 8 {
				do(i)
			}
		})
	}
	all.Wait()
}

// after checks objects that came back.
func after(t *testing.T, c *kubernetes.Clientset, ns string, before *kept) {
	t.Helper()
	service, err := c.CoreV1().Services(ns).Get(t.Context(), "web", metav1.GetOptions{})
	must(t, err)
	if !reflect.DeepEqual(service.Spec, before.service.Spec) || service.UID == before.service.UID {
		t.Errorf("the Service is %+v, was %+v", service.Spec, before.service.Spec)
	}
	secret, err := c.CoreV1().Secrets(ns).Get(t.Context(), before.secret.Name, metav1.GetOptions{})
	must(t, err)
	if !reflect.DeepEqual(secret.Data, before.secret.Data) || secret.Type != before.secret.Type || secret.Labels["owner"] != "helm" {
		t.Errorf("the Secret is %+v", secret)
	}
	owner, err := c.CoreV1().ConfigMaps(ns).Get(t.Context(), "owner", metav1.GetOptions{})
	must(t, err)
	owned, err := c.CoreV1().ConfigMaps(ns).Get(t.Context(), before.owned.Name, metav1.GetOptions{})
	must(t, err)
	if got := owned.OwnerReferences; len(got) != 1 || got[0].UID != owner.UID || owner.UID == before.ownerUID {
		t.Errorf("the owner %s is referred to as %v", owner.UID, got)
	}
}

var widgets = schema.GroupVersionResource{Group: "undo.example.com", Version: "v1", Resource: "widgets"}

// TestDeletedDefinition brings back a definition with its objects.
func TestDeletedDefinition(t *testing.T) {
	t.Parallel()
	c, config := administrator(t, "carl")
	ns := namespace(t, c)
	preserve := true
	definitions := apiextensions.NewForConfigOrDie(config).ApiextensionsV1().CustomResourceDefinitions()
	_, err := definitions.Create(t.Context(), &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.undo.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: widgets.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
				OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &preserve},
			}}},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	objects := dynamic.NewForConfigOrDie(config).Resource(widgets)
	widget := func(name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "undo.example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": name}, "spec": map[string]any{"size": int64(7)},
		}}
	}
	eventually(t, "widgets are served", func() bool {
		_, err := objects.Namespace(ns).Create(t.Context(), widget("w0"), metav1.CreateOptions{})
		return err == nil
	})
	for i := range 50 {
		_, err := objects.Namespace([]string{ns, "default"}[i%2]).Create(t.Context(), widget(fmt.Sprint("w", i+1)), metav1.CreateOptions{})
		must(t, err)
	}
	must(t, definitions.Delete(t.Context(), "widgets.undo.example.com", metav1.DeleteOptions{}))
	eventually(t, "the definition is gone", func() bool {
		_, err := definitions.Get(t.Context(), "widgets.undo.example.com", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})

	status := do(t, config, undo.Spec{Apply: true, Object: &undo.ObjectReference{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions", Name: "widgets.undo.example.com"}})
	if !status.Complete || len(status.Plan) != 52 || status.Plan[0].Object.Kind != "CustomResourceDefinition" {
		t.Fatalf("%d steps:\n%s", len(status.Plan), told(status))
	}
	all, err := objects.List(t.Context(), metav1.ListOptions{})
	must(t, err)
	if len(all.Items) != 51 {
		t.Errorf("%d objects came back", len(all.Items))
	}
	for _, w := range all.Items {
		if size, _, _ := unstructured.NestedInt64(w.Object, "spec", "size"); size != 7 {
			t.Errorf("%s came back as %v", w.GetName(), w.Object)
		}
	}
	// By user, the same: all of it followed from what carl did.
	must(t, definitions.Delete(t.Context(), "widgets.undo.example.com", metav1.DeleteOptions{}))
	eventually(t, "the definition is gone again", func() bool {
		_, err := definitions.Get(t.Context(), "widgets.undo.example.com", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	status = do(t, config, undo.Spec{Apply: true, Changes: &undo.ChangeSelector{User: "carl", AfterRevision: status.Applied.BeforeRevision - 1, Resources: []string{"customresourcedefinitions.apiextensions.k8s.io"}}})
	if !status.Complete || len(status.Plan) != 52 {
		t.Errorf("%d steps:\n%s", len(status.Plan), told(status))
	}
}
