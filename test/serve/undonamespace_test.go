package serve

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sqube/sqube/test/harness"
)

// mart is what people and Helm make in a namespace.
const mart = `
{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: reader}, rules: [{verbs: [get], apiGroups: [""], resources: [pods]}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: robot, namespace: mart}]
---
{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {type: NodePort, selector: {app: web}, ports: [{port: 80}]}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: {selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: web}]}}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}, spec: {volumeName: gone, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: alone}, spec: {serviceAccountName: robot, terminationGracePeriodSeconds: 0, containers: [{name: app, image: app}]}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: owner}}
---
{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: gpu}, spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}}
---
{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: by-hand}, spec: {holderIdentity: anne}}
`

// owned is what controllers make for others, and an object whose owner comes back with another uid. Its arguments are uids.
const owned = `
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web-1, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: %s, controller: true}]}
spec: {selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: web}]}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: child, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: owner, uid: %s}]}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: alone-gpu, ownerReferences: [{apiVersion: v1, kind: Pod, name: alone, uid: %s, controller: true}]}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}
`

// recorded is what controllers write down.
const recorded = `
{apiVersion: v1, kind: Event, metadata: {name: e1}, involvedObject: {kind: Pod, name: alone, namespace: mart}, reason: Seen}
---
{apiVersion: v1, kind: Event, metadata: {name: e2}, involvedObject: {kind: Pod, name: alone, namespace: mart}, reason: Seen}
---
{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: leader}, spec: {holderIdentity: robot}}
`

// apply creates objects in a namespace.
func apply(t *testing.T, kubeconfig, namespace, manifests string) {
	t.Helper()
	if out, err := kubectl(t, kubeconfig, manifests, "create", "-n", namespace, "-f", "-"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// namespace brings back a deleted namespace, and takes that back. Helm's releases are in it, and what controllers make is left to them.
func (f *undone) namespace(t *testing.T) {
	ctx := t.Context()
	anne, c := f.administrator(t, "anne")
	makeNamespace(t, c, "mart")
	apply(t, anne, "mart", mart)
	web, err := c.AppsV1().Deployments("mart").Get(ctx, "web", metav1.GetOptions{})
	harness.Must(t, err)
	owner, err := c.CoreV1().ConfigMaps("mart").Get(ctx, "owner", metav1.GetOptions{})
	harness.Must(t, err)
	alone, err := c.CoreV1().Pods("mart").Get(ctx, "alone", metav1.GetOptions{})
	harness.Must(t, err)
	apply(t, anne, "mart", fmt.Sprintf(owned, web.UID, owner.UID, alone.UID))
	apply(t, f.as(t, "system:serviceaccount:mart:robot", "system:masters"), "mart", recorded)
	service, err := c.CoreV1().Services("mart").Get(ctx, "web", metav1.GetOptions{})
	harness.Must(t, err)
	release := &corev1.Secret{Type: "helm.sh/release.v1", Data: map[string][]byte{"release": []byte(strings.Repeat("H4sI", 1000))}}
	release.Labels = map[string]string{"owner": "helm"}
	for i := range 5 {
		release.Name = fmt.Sprintf("sh.helm.release.v1.web.v%d", i)
		_, err := c.CoreV1().Secrets("mart").Create(ctx, release, metav1.CreateOptions{})
		harness.Must(t, err)
	}
	harness.Must(t, c.CoreV1().Namespaces().Delete(ctx, "mart", metav1.DeleteOptions{}))
	gone(t, c, "mart")

	printed := undo(t, anne, "ns/mart")
	has(t, printed, "leave   serviceaccounts mart/default: a controller makes it in every namespace", "leave   configmaps mart/kube-root-ca.crt: a controller makes it in every namespace",
		"leave   replicasets.apps mart/web-1: Deployment web makes it", "create  persistentvolumeclaims mart/data",
		"leave   resourceclaims.resource.k8s.io mart/alone-gpu: Pod alone makes it", "create  resourceclaims.resource.k8s.io mart/gpu", "create  leases.coordination.k8s.io mart/by-hand",
		"note: left out: 2 events: controllers and kubelets make them", "note: left out: 1 leases.coordination.k8s.io: controllers and kubelets make them",
		"note: admission sees anne as the author of what is created, not who made it before",
		"    warning: its volume gone is gone, and the data with it: it comes back empty", totals(17, 0, 0, 4))
	printed = undo(t, anne, "ns/mart", "--apply")
	if strings.Count(printed, "(done)") != 17 {
		t.Fatalf("sqube undo prints\n%s", printed)
	}
	is, err := c.CoreV1().Services("mart").Get(ctx, "web", metav1.GetOptions{})
	harness.Must(t, err)
	if !reflect.DeepEqual(is.Spec, service.Spec) || is.UID == service.UID {
		t.Errorf("the Service is %+v, was %+v", is.Spec, service.Spec)
	}
	secret, err := c.CoreV1().Secrets("mart").Get(ctx, release.Name, metav1.GetOptions{})
	harness.Must(t, err)
	if !reflect.DeepEqual(secret.Data, release.Data) || secret.Type != release.Type || secret.Labels["owner"] != "helm" {
		t.Errorf("the Secret is %+v", secret)
	}
	parent, err := c.CoreV1().ConfigMaps("mart").Get(ctx, "owner", metav1.GetOptions{})
	harness.Must(t, err)
	child, err := c.CoreV1().ConfigMaps("mart").Get(ctx, "child", metav1.GetOptions{})
	harness.Must(t, err)
	if got := child.OwnerReferences; len(got) != 1 || got[0].UID != parent.UID || parent.UID == owner.UID {
		t.Errorf("the owner %s is referred to as %v", parent.UID, got)
	}
	has(t, undo(t, anne, "ns/mart"), totals(0, 0, 0, 21))

	has(t, undo(t, anne, append(inverse(t, printed), "--apply")...), "delete  namespaces mart (done)", totals(0, 0, 17, 0))
	if ns, err := c.CoreV1().Namespaces().Get(ctx, "mart", metav1.GetOptions{}); !apierrors.IsNotFound(err) && ns.DeletionTimestamp == nil {
		t.Errorf("the namespace is not deleted: %v, %v", ns, err)
	}
}

// gone waits until a namespace is.
func gone(t *testing.T, c kubernetes.Interface, namespace string) {
	t.Helper()
	harness.Retry(t, "the namespace is gone", func() error {
		_, err := c.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
		return untilNotFound(err)
	})
}

func untilNotFound(err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err == nil:
		return fmt.Errorf("it is there")
	}
	return err
}

// definition brings back a deleted definition with its objects in two namespaces, and before that, a namespace whose custom objects
// can't come back yet.
func (f *undone) definition(t *testing.T) {
	ctx := t.Context()
	carl, c := f.administrator(t, "carl")
	config, err := clientcmd.BuildConfigFromFlags("", carl)
	harness.Must(t, err)
	definitions := apiextensions.NewForConfigOrDie(config).ApiextensionsV1().CustomResourceDefinitions()
	_, err = definitions.Create(ctx, plain("gadget"), metav1.CreateOptions{})
	harness.Must(t, err)
	gadgets := dynamic.NewForConfigOrDie(config).Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "gadgets"})
	makeNamespace(t, c, "gadgets-a")
	makeNamespace(t, c, "gadgets-b")
	for i := range 20 {
		gadget := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "gadget", "metadata": map[string]any{"name": fmt.Sprint("g", i)}, "spec": map[string]any{"size": int64(7)},
			"status": map[string]any{"color": "red"}, // a field like others: the definition has no subresource for it
		}}
		harness.Retry(t, "gadgets are served", func() error {
			_, err := gadgets.Namespace([]string{"gadgets-a", "gadgets-b"}[i%2]).Create(ctx, gadget, metav1.CreateOptions{})
			return err
		})
	}
	remove := func() {
		t.Helper()
		harness.Must(t, definitions.Delete(ctx, "gadgets.example.com", metav1.DeleteOptions{}))
		harness.Retry(t, "the definition is gone", func() error {
			_, err := definitions.Get(ctx, "gadgets.example.com", metav1.GetOptions{})
			return untilNotFound(err)
		})
	}
	expect := func() {
		t.Helper()
		all, err := gadgets.List(ctx, metav1.ListOptions{})
		harness.Must(t, err)
		wrong := slices.ContainsFunc(all.Items, func(g unstructured.Unstructured) bool {
			size, _, _ := unstructured.NestedInt64(g.Object, "spec", "size")
			color, _, _ := unstructured.NestedString(g.Object, "status", "color")
			managers := g.GetManagedFields()
			return size != 7 || color != "red" || len(managers) != 1 || managers[0].Manager != "serve.test"
		})
		if len(all.Items) != 20 || wrong {
			t.Errorf("what came back is %v", all.Items)
		}
	}
	for _, name := range []string{"g0", "g2"} {
		_, err := gadgets.Namespace("gadgets-a").Patch(ctx, name, types.MergePatchType, []byte(`{"status":{"color":"blue"}}`), metav1.PatchOptions{FieldManager: "painter"})
		harness.Must(t, err)
	}
	has(t, undo(t, carl, "--manager", "painter", "--apply"), `    .status.color: "blue" → "red"`, totals(0, 2, 0, 0))
	expect()
	if text := succeeds(t, []string{"show", "gadgets.example.com", "g0", "-n", "gadgets-a", "--datastore", f.datastore}); !strings.Contains(text, "color: red") {
		t.Errorf("a gadget is shown as\n%s", text)
	}
	remove()
	printed := undo(t, carl, "crd/gadgets.example.com", "--apply")
	has(t, printed, "create  customresourcedefinitions.apiextensions.k8s.io gadgets.example.com (done)", "create  gadgets.example.com gadgets-b/g19 (done)", totals(21, 0, 0, 0),
		"note: applied step by step: objects of gadgets.example.com can be created only after its definition was established")
	expect()

	harness.Must(t, c.CoreV1().Namespaces().Delete(ctx, "gadgets-a", metav1.DeleteOptions{}))
	gone(t, c, "gadgets-a")
	remove()
	has(t, undo(t, carl, "ns/gadgets-a"), "leave   gadgets.example.com gadgets-a/g0: gadgets.example.com is not served: bring back its CustomResourceDefinition first")
	// All of it followed from what carl did, and comes back in the right order.
	args := append(inverse(t, printed)[4:6], "--user", "carl", "--resources", "namespaces,customresourcedefinitions.apiextensions.k8s.io", "--apply")
	printed = undo(t, carl, args...)
	has(t, printed, totals(22, 0, 0, 2))
	expect()
}
