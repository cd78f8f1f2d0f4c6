package access

import (
	"fmt"
	"net/http"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
)

// kubeletClient returns the client of a node's kubelet.
func kubeletClient(t testing.TB, c *kit.Cluster, node string) *kit.Client {
	t.Helper()
	return c.As(t, "system:node:"+node, "system:nodes")
}

// nodesWithPods creates two nodes, mine and yours, with a Pod of that name on each, and waits until the authorizer has them.
func nodesWithPods(t testing.TB, c *kit.Cluster) (kubelet *kit.Client, mine, yours *corev1.Pod) {
	t.Helper()
	c.MakeServiceAccount(t, "robot")
	for _, name := range []string{"mine-" + c.Namespace, "yours-" + c.Namespace} {
		node(t, c, name)
	}
	mine, yours = c.MakePodWithVolumes(t, "mine", "mine-"+c.Namespace), c.MakePodWithVolumes(t, "yours", "yours-"+c.Namespace)
	kubelet = kubeletClient(t, c, mine.Spec.NodeName)
	harness.Eventually(t, "the authorizer has the Pods of the nodes", func() bool {
		return kubelet.Get(t, c.Path("v1", "secrets", "mine")).Code == http.StatusOK &&
			kubeletClient(t, c, yours.Spec.NodeName).Get(t, c.Path("v1", "secrets", "yours")).Code == http.StatusOK
	})
	return kubelet, mine, yours
}

var nodes = []kit.Promise{
	{Statement: "a kubelet may read what the Pods on its node refer to, and nothing of other nodes", Proof: func(t *testing.T, c *kit.Cluster) {
		kubelet, mine, yours := nodesWithPods(t, c)
		for _, resource := range []string{"secrets", "configmaps", "persistentvolumeclaims", "pods"} {
			kubelet.Get(t, c.Path("v1", resource, "mine")).OK(t)
			kubelet.Get(t, c.Path("v1", resource, "yours")).Forbidden(t, "no relationship found between node '"+mine.Spec.NodeName+"' and this object")
		}
		kubelet.Get(t, c.Path("v1", "secrets")).Forbidden(t, "No Object name found")
		kubelet.Get(t, c.Path("v1", "secrets")+"?fieldSelector=metadata.name=mine&watch=true&timeoutSeconds=1").OK(t)
		kubelet.Put(t, c.Path("v1", "secrets", "mine"), map[string]any{}).Forbidden(t, "can only read resources of this type")
		kubelet.Get(t, "/api/v1/nodes/"+mine.Spec.NodeName).OK(t)
		kubelet.Get(t, "/api/v1/nodes/"+yours.Spec.NodeName).Forbidden(t, "only its own Node object")
		kubelet.Get(t, "/api/v1/nodes").Forbidden(t, "cannot read all nodes, only its own Node object")
		kubelet.Get(t, "/api/v1/services").OK(t) // nodes need all of them

		c.Delete(t, c.Path("v1", "pods", "mine")+"?gracePeriodSeconds=0").OK(t)
		harness.Eventually(t, "without the Pod, the Secret can no longer be read", func() bool {
			return kubelet.Get(t, c.Path("v1", "secrets", "mine")).Code == http.StatusForbidden
		})
	}},
	{Statement: "a kubelet may list and watch Pods only with a selector for its own node", Proof: func(t *testing.T, c *kit.Cluster) {
		kubelet, mine, yours := nodesWithPods(t, c)
		kit.Equal(t, kubelet.Get(t, "/api/v1/pods?fieldSelector=spec.nodeName="+mine.Spec.NodeName).OK(t).Names(t), []string{"mine"})
		kubelet.Get(t, "/api/v1/pods?watch=true&timeoutSeconds=1&fieldSelector=spec.nodeName="+mine.Spec.NodeName).OK(t)
		kubelet.Get(t, "/api/v1/pods?fieldSelector=spec.nodeName="+yours.Spec.NodeName).Forbidden(t,
			"can only list/watch pods with spec.nodeName field selector")
		kubelet.Get(t, "/api/v1/pods").Forbidden(t, "can only list/watch pods with spec.nodeName field selector")
		// A review may include a selector.
		ask := func(selector *authorizationv1.FieldSelectorAttributes) bool {
			return c.ReviewAccess(t, authorizationv1.SubjectAccessReviewSpec{User: "system:node:" + mine.Spec.NodeName, Groups: []string{"system:nodes"},
				ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Version: "v1", Resource: "pods", FieldSelector: selector}}).Allowed
		}
		if !ask(&authorizationv1.FieldSelectorAttributes{RawSelector: "spec.nodeName=" + mine.Spec.NodeName}) || ask(nil) {
			t.Error("the review ignores the selector")
		}
	}},
	{Statement: "a kubelet may change its own Node, except its taints and restricted labels", Proof: func(t *testing.T, c *kit.Cluster) {
		mine, yours := "mine-"+c.Namespace, "yours-"+c.Namespace
		node(t, c, yours)
		kubelet := kubeletClient(t, c, mine)
		node := func(name string, labels map[string]string) map[string]any {
			return map[string]any{"metadata": map[string]any{"name": name, "labels": labels}}
		}
		kubelet.Post(t, "/api/v1/nodes", node(mine, map[string]string{"node-restriction.kubernetes.io/team": "a"})).
			Forbidden(t, "is not allowed to set the following labels: node-restriction.kubernetes.io/team")
		kubelet.Post(t, "/api/v1/nodes", node("other-"+c.Namespace, nil)).Forbidden(t, `is not allowed to modify node "other-`+c.Namespace+`"`)
		kubelet.Post(t, "/api/v1/nodes", node(mine, map[string]string{"kubernetes.io/os": "linux", "example.com/rack": "7"})).Created(t)
		change := func(name, patch string) kit.Answer {
			return kubelet.Patch(t, kit.MergePatch, "/api/v1/nodes/"+name, patch)
		}
		change(mine, `{"metadata":{"labels":{"topology.kubernetes.io/zone":"z"}}}`).OK(t)
		change(mine, `{"metadata":{"labels":{"kubernetes.io/team":"a"}}}`).Forbidden(t, "is not allowed to modify labels: kubernetes.io/team")
		change(mine, `{"spec":{"taints":[]}}`).Want(t, http.StatusOK, http.StatusForbidden)
		change(mine, `{"spec":{"taints":[{"key":"k","effect":"NoExecute"}]}}`).Forbidden(t, "is not allowed to modify taints")
		change(yours, `{"metadata":{"labels":{"a":"b"}}}`).Forbidden(t, "is not allowed to modify node")
		kubelet.Patch(t, kit.MergePatch, "/api/v1/nodes/"+mine+"/status", `{"status":{"phase":"Running"}}`).OK(t)
		kubelet.Patch(t, kit.MergePatch, "/api/v1/nodes/"+yours+"/status", `{"status":{"phase":"Running"}}`).Forbidden(t, "is not allowed to modify node")
		kubelet.Delete(t, "/api/v1/nodes/"+mine).Forbidden(t)
	}},
	{Statement: "a kubelet may write status of, evict and delete only Pods on its node, and create only its own mirror Pods", Proof: func(t *testing.T, c *kit.Cluster) {
		kubelet, _, _ := nodesWithPods(t, c)
		status := `{"status":{"phase":"Running"}}`
		kubelet.Patch(t, kit.MergePatch, c.Path("v1", "pods", "mine", "status"), status).OK(t)
		kubelet.Patch(t, kit.MergePatch, c.Path("v1", "pods", "yours", "status"), status).Forbidden(t,
			"can only update pod status for pods with spec.nodeName set to itself")
		kubelet.Patch(t, kit.MergePatch, c.Path("v1", "pods", "mine"), `{"metadata":{"labels":{"a":"b"}}}`).Forbidden(t)
		eviction := func(name string) map[string]any {
			return kit.Manifest("{apiVersion: policy/v1, kind: Eviction, metadata: {name: %s}}", name)
		}
		kubelet.Post(t, c.Path("v1", "pods", "yours", "eviction"), eviction("yours")).Forbidden(t, "can only evict pods with spec.nodeName set to itself")
		kubelet.Delete(t, c.Path("v1", "pods", "yours")).Forbidden(t, "can only delete pods with spec.nodeName set to itself")
		c.MakeDefaultServiceAccount(t)
		kubelet.Post(t, c.Path("v1", "pods"), kit.Pod("new")).Forbidden(t, `pod does not have "kubernetes.io/config.mirror" annotation`)
		kubelet.Post(t, c.Path("v1", "pods", "mine", "eviction"), eviction("mine")).Created(t)
	}},
	{Statement: "a kubelet may request tokens only for Pods on its node, bound to them", Proof: func(t *testing.T, c *kit.Cluster) {
		kubelet, mine, yours := nodesWithPods(t, c)
		ask := func(name string, uid types.UID, audiences ...string) kit.Answer {
			spec := boundTo("Pod", name)
			spec.BoundObjectRef.UID, spec.Audiences = uid, audiences
			return kubelet.Post(t, c.Path("v1", "serviceaccounts", "robot", "token"), authenticationv1.TokenRequest{Spec: spec})
		}
		ask("mine", mine.UID).Created(t)
		ask("mine", "").Forbidden(t, "node requested token with a pod binding without a uid")
		ask("mine", mine.UID, "vault").Forbidden(t, `error validating audience "vault"`)
		ask("yours", yours.UID).Forbidden(t, "node requested token bound to a pod scheduled on a different node")
		kubelet.Post(t, c.Path("v1", "serviceaccounts", "robot", "token"), authenticationv1.TokenRequest{}).Forbidden(t,
			"node requested token not bound to a pod")
		kubelet.Post(t, c.Path("v1", "serviceaccounts", "default", "token"), authenticationv1.TokenRequest{Spec: boundTo("Pod", "mine")}).
			Forbidden(t, "no relationship found between node")
	}},
	{Statement: "a kubelet may write its own Lease in kube-node-lease, and its own CSINode", Proof: func(t *testing.T, c *kit.Cluster) {
		mine, yours := "mine-"+c.Namespace, "yours-"+c.Namespace
		kubelet := kubeletClient(t, c, mine)
		lease := func(name string) map[string]any { return kit.Manifest("{metadata: {name: %s}}", name) }
		const leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
		kubelet.Post(t, leases, lease(mine)).Created(t)
		kubelet.Put(t, leases+"/"+mine, kubelet.Get(t, leases+"/"+mine).OK(t).Body).OK(t)
		kubelet.Post(t, leases, lease(yours)).Forbidden(t, "can only access node lease with the same name as the requesting node")
		kubelet.Get(t, leases+"/"+yours).Forbidden(t, "can only access node lease with the same name as the requesting node")
		kubelet.Get(t, leases).Forbidden(t)
		kubelet.Post(t, c.Path("coordination.k8s.io/v1", "leases"), lease(mine)).Forbidden(t,
			`can only access leases in the "kube-node-lease" system namespace`)
		csi := func(name string) map[string]any {
			return kit.Manifest("{metadata: {name: %s}, spec: {drivers: []}}", name)
		}
		kubelet.Post(t, "/apis/storage.k8s.io/v1/csinodes", csi(mine)).Created(t)
		kubelet.Post(t, "/apis/storage.k8s.io/v1/csinodes", csi(yours)).Forbidden(t, "can only access CSINode with the same name as the requesting node")
	}},
	{Statement: "a kubelet can't escalate: Pods that it creates never run as another account, so it gets no token of one", Proof: func(t *testing.T, c *kit.Cluster) {
		kubelet, mine, _ := nodesWithPods(t, c)
		c.MakeServiceAccount(t, "admin")
		c.BindEverywhere(t, "ClusterRole/cluster-admin", "ServiceAccount/admin")
		attack := func(metadata, spec string) map[string]any {
			return kit.Manifest(`{metadata: {name: attack%s}, spec: {nodeName: %s, containers: [{name: c, image: i}]%s}}`, metadata, mine.Spec.NodeName, spec)
		}
		const mirror = `, annotations: {kubernetes.io/config.mirror: a}, ownerReferences: [{apiVersion: v1, kind: Node, name: %s, uid: %s, controller: true}]`
		node := c.Get(t, "/api/v1/nodes/"+mine.Spec.NodeName).OK(t)
		mirrored := fmt.Sprintf(mirror, mine.Spec.NodeName, node.Text(t, "metadata", "uid"))
		for _, pod := range []map[string]any{
			attack("", ", serviceAccountName: admin"),
			attack(mirrored, ", serviceAccountName: admin"),
			attack(mirrored, ", serviceAccount: admin"),
			attack(mirrored, ", volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t}}]}}]"),
			attack(mirrored, ", volumes: [{name: v, secret: {secretName: yours}}]"),
			attack(", annotations: {kubernetes.io/config.mirror: a}", ""),
		} {
			kubelet.Post(t, c.Path("v1", "pods"), pod).Forbidden(t)
		}
		// Nor can a Pod of the node change its account.
		kubelet.Patch(t, kit.MergePatch, c.Path("v1", "pods", "mine", "status"), `{"spec":{"serviceAccountName":"admin"}}`).OK(t)
		kubelet.Post(t, c.Path("v1", "serviceaccounts", "admin", "token"),
			authenticationv1.TokenRequest{Spec: boundTo("Pod", "mine")}).Forbidden(t, "no relationship found between node")
		kubelet.Post(t, c.Path("v1", "pods"), attack(mirrored, "")).Created(t)
	}},
	{Statement: "a kubelet is a user with a node's name in the group system:nodes; neither alone suffices", Proof: func(t *testing.T, c *kit.Cluster) {
		c.As(t, "somebody", "system:nodes").Get(t, "/api/v1/services").Forbidden(t)
		c.As(t, "system:node:"+c.Namespace, "other").Get(t, "/api/v1/services").Forbidden(t)
	}},
}
