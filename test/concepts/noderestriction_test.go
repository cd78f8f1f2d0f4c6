package concepts

import (
	"fmt"
	"net/http"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// kubelet returns the client of a node's kubelet.
func (c *cluster) kubelet(t testing.TB, node string) *client {
	t.Helper()
	return c.as(t, "system:node:"+node, "system:nodes")
}

// podWith makes a Pod on a node that mounts a Secret and a ConfigMap, each named after it, and a claim of that name.
func (c *cluster) podWith(t testing.TB, name, node string) *corev1.Pod {
	t.Helper()
	c.post(t, c.path("v1", "secrets"), map[string]any{"metadata": map[string]any{"name": name}}).want(t, http.StatusCreated)
	c.post(t, c.path("v1", "configmaps"), configMap(name, nil)).want(t, http.StatusCreated)
	c.post(t, c.path("v1", "persistentvolumeclaims"), manifest(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: %s},
		spec: {accessModes: [ReadWriteOnce], storageClassName: "", resources: {requests: {storage: 1Gi}}}}`, name)).want(t, http.StatusCreated)
	c.post(t, c.path("v1", "pods"), manifest(`{apiVersion: v1, kind: Pod, metadata: {name: %[1]s}, spec: {nodeName: %[2]s, serviceAccountName: robot, containers: [{name: c, image: i}],
		volumes: [{name: s, secret: {secretName: %[1]s}}, {name: m, configMap: {name: %[1]s}}, {name: v, persistentVolumeClaim: {claimName: %[1]s}}]}}`, name, node)).want(t, http.StatusCreated)
	pod, err := c.kube.CoreV1().Pods(c.namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// nodesWithPods makes two nodes, mine and yours, with a Pod of that name on each, and waits until the server knows.
func nodesWithPods(t testing.TB, c *cluster) (kubelet *client, mine, yours *corev1.Pod) {
	t.Helper()
	c.account(t, "robot")
	for _, name := range []string{"mine-" + c.namespace, "yours-" + c.namespace} {
		c.node(t, name)
	}
	mine, yours = c.podWith(t, "mine", "mine-"+c.namespace), c.podWith(t, "yours", "yours-"+c.namespace)
	kubelet = c.kubelet(t, mine.Spec.NodeName)
	eventually(t, "the server knows what is on the nodes", func() bool {
		return kubelet.get(t, c.path("v1", "secrets", "mine")).Code == http.StatusOK &&
			c.kubelet(t, yours.Spec.NodeName).get(t, c.path("v1", "secrets", "yours")).Code == http.StatusOK
	})
	return kubelet, mine, yours
}

var nodes = []promise{
	{"a kubelet reads what the Pods on its node refer to, and nothing of other nodes", func(t *testing.T, c *cluster) {
		kubelet, mine, yours := nodesWithPods(t, c)
		for _, resource := range []string{"secrets", "configmaps", "persistentvolumeclaims", "pods"} {
			kubelet.get(t, c.path("v1", resource, "mine")).want(t, http.StatusOK)
			kubelet.get(t, c.path("v1", resource, "yours")).forbidden(t, "no relationship found between node '"+mine.Spec.NodeName+"' and this object")
		}
		kubelet.get(t, c.path("v1", "secrets")).forbidden(t, "No Object name found")
		kubelet.get(t, c.path("v1", "secrets")+"?fieldSelector=metadata.name=mine&watch=true&timeoutSeconds=1").want(t, http.StatusOK)
		kubelet.put(t, c.path("v1", "secrets", "mine"), map[string]any{}).forbidden(t, "can only read resources of this type")
		kubelet.get(t, "/api/v1/nodes/"+mine.Spec.NodeName).want(t, http.StatusOK)
		kubelet.get(t, "/api/v1/nodes/"+yours.Spec.NodeName).forbidden(t, "only its own Node object")
		kubelet.get(t, "/api/v1/nodes").forbidden(t, "cannot read all nodes, only its own Node object")
		kubelet.get(t, "/api/v1/services").want(t, http.StatusOK) // nodes need all of them

		c.delete(t, c.path("v1", "pods", "mine")+"?gracePeriodSeconds=0").want(t, http.StatusOK)
		eventually(t, "without the Pod the Secret can't be read any more", func() bool {
			return kubelet.get(t, c.path("v1", "secrets", "mine")).Code == http.StatusForbidden
		})
	}},
	{"a kubelet lists and watches Pods only by a selector of its own node", func(t *testing.T, c *cluster) {
		kubelet, mine, yours := nodesWithPods(t, c)
		equal(t, kubelet.get(t, "/api/v1/pods?fieldSelector=spec.nodeName="+mine.Spec.NodeName).want(t, http.StatusOK).names(t), []string{"mine"})
		kubelet.get(t, "/api/v1/pods?watch=true&timeoutSeconds=1&fieldSelector=spec.nodeName="+mine.Spec.NodeName).want(t, http.StatusOK)
		kubelet.get(t, "/api/v1/pods?fieldSelector=spec.nodeName="+yours.Spec.NodeName).forbidden(t,
			"can only list/watch pods with spec.nodeName field selector")
		kubelet.get(t, "/api/v1/pods").forbidden(t, "can only list/watch pods with spec.nodeName field selector")
		// A review can be asked about a selector too.
		ask := func(selector *authorizationv1.FieldSelectorAttributes) bool {
			return c.review(t, authorizationv1.SubjectAccessReviewSpec{User: "system:node:" + mine.Spec.NodeName, Groups: []string{"system:nodes"},
				ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Version: "v1", Resource: "pods", FieldSelector: selector}}).Allowed
		}
		if !ask(&authorizationv1.FieldSelectorAttributes{RawSelector: "spec.nodeName=" + mine.Spec.NodeName}) || ask(nil) {
			t.Error("the review does not look at the selector")
		}
	}},
	{"a kubelet changes its own Node, but not its taints, nor labels that are not for nodes to set", func(t *testing.T, c *cluster) {
		mine, yours := "mine-"+c.namespace, "yours-"+c.namespace
		c.node(t, yours)
		kubelet := c.kubelet(t, mine)
		node := func(name string, labels map[string]string) map[string]any {
			return map[string]any{"metadata": map[string]any{"name": name, "labels": labels}}
		}
		kubelet.post(t, "/api/v1/nodes", node(mine, map[string]string{"node-restriction.kubernetes.io/team": "a"})).
			forbidden(t, "is not allowed to set the following labels: node-restriction.kubernetes.io/team")
		kubelet.post(t, "/api/v1/nodes", node("other-"+c.namespace, nil)).forbidden(t, `is not allowed to modify node "other-`+c.namespace+`"`)
		kubelet.post(t, "/api/v1/nodes", node(mine, map[string]string{"kubernetes.io/os": "linux", "example.com/rack": "7"})).want(t, http.StatusCreated)
		change := func(name, patch string) answer {
			return kubelet.patch(t, mergePatch, "/api/v1/nodes/"+name, patch)
		}
		change(mine, `{"metadata":{"labels":{"topology.kubernetes.io/zone":"z"}}}`).want(t, http.StatusOK)
		change(mine, `{"metadata":{"labels":{"kubernetes.io/team":"a"}}}`).forbidden(t, "is not allowed to modify labels: kubernetes.io/team")
		change(mine, `{"spec":{"taints":[]}}`).want(t, http.StatusOK, http.StatusForbidden)
		change(mine, `{"spec":{"taints":[{"key":"k","effect":"NoExecute"}]}}`).forbidden(t, "is not allowed to modify taints")
		change(yours, `{"metadata":{"labels":{"a":"b"}}}`).forbidden(t, "is not allowed to modify node")
		kubelet.patch(t, mergePatch, "/api/v1/nodes/"+mine+"/status", `{"status":{"phase":"Running"}}`).want(t, http.StatusOK)
		kubelet.patch(t, mergePatch, "/api/v1/nodes/"+yours+"/status", `{"status":{"phase":"Running"}}`).forbidden(t, "is not allowed to modify node")
		kubelet.delete(t, "/api/v1/nodes/"+mine).forbidden(t)
	}},
	{"a kubelet writes status, evicts and deletes only Pods on its node, and creates only mirrors of its own", func(t *testing.T, c *cluster) {
		kubelet, _, _ := nodesWithPods(t, c)
		status := `{"status":{"phase":"Running"}}`
		kubelet.patch(t, mergePatch, c.path("v1", "pods", "mine", "status"), status).want(t, http.StatusOK)
		kubelet.patch(t, mergePatch, c.path("v1", "pods", "yours", "status"), status).forbidden(t,
			"can only update pod status for pods with spec.nodeName set to itself")
		kubelet.patch(t, mergePatch, c.path("v1", "pods", "mine"), `{"metadata":{"labels":{"a":"b"}}}`).forbidden(t)
		eviction := func(name string) map[string]any {
			return manifest("{apiVersion: policy/v1, kind: Eviction, metadata: {name: %s}}", name)
		}
		kubelet.post(t, c.path("v1", "pods", "yours", "eviction"), eviction("yours")).forbidden(t, "can only evict pods with spec.nodeName set to itself")
		kubelet.delete(t, c.path("v1", "pods", "yours")).forbidden(t, "can only delete pods with spec.nodeName set to itself")
		c.serviceAccount(t)
		kubelet.post(t, c.path("v1", "pods"), pod("new")).forbidden(t, `pod does not have "kubernetes.io/config.mirror" annotation`)
		kubelet.post(t, c.path("v1", "pods", "mine", "eviction"), eviction("mine")).want(t, http.StatusCreated)
	}},
	{"a kubelet gets tokens only for Pods on its node, bound to them", func(t *testing.T, c *cluster) {
		kubelet, mine, yours := nodesWithPods(t, c)
		ask := func(name string, uid types.UID, audiences ...string) answer {
			spec := boundTo("Pod", name)
			spec.BoundObjectRef.UID, spec.Audiences = uid, audiences
			return kubelet.post(t, c.path("v1", "serviceaccounts", "robot", "token"), authenticationv1.TokenRequest{Spec: spec})
		}
		ask("mine", mine.UID).want(t, http.StatusCreated)
		ask("mine", "").forbidden(t, "node requested token with a pod binding without a uid")
		ask("mine", mine.UID, "vault").forbidden(t, `error validating audience "vault"`)
		ask("yours", yours.UID).forbidden(t, "node requested token bound to a pod scheduled on a different node")
		kubelet.post(t, c.path("v1", "serviceaccounts", "robot", "token"), authenticationv1.TokenRequest{}).forbidden(t,
			"node requested token not bound to a pod")
		kubelet.post(t, c.path("v1", "serviceaccounts", "default", "token"), authenticationv1.TokenRequest{Spec: boundTo("Pod", "mine")}).
			forbidden(t, "no relationship found between node")
	}},
	{"a kubelet renews its own Lease in kube-node-lease, and its own CSINode", func(t *testing.T, c *cluster) {
		mine, yours := "mine-"+c.namespace, "yours-"+c.namespace
		kubelet := c.kubelet(t, mine)
		lease := func(name string) map[string]any { return manifest("{metadata: {name: %s}}", name) }
		const leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
		kubelet.post(t, leases, lease(mine)).want(t, http.StatusCreated)
		kubelet.put(t, leases+"/"+mine, kubelet.get(t, leases+"/"+mine).want(t, http.StatusOK).Body).want(t, http.StatusOK)
		kubelet.post(t, leases, lease(yours)).forbidden(t, "can only access node lease with the same name as the requesting node")
		kubelet.get(t, leases+"/"+yours).forbidden(t, "can only access node lease with the same name as the requesting node")
		kubelet.get(t, leases).forbidden(t)
		kubelet.post(t, c.path("coordination.k8s.io/v1", "leases"), lease(mine)).forbidden(t,
			`can only access leases in the "kube-node-lease" system namespace`)
		csi := func(name string) map[string]any { return manifest("{metadata: {name: %s}, spec: {drivers: []}}", name) }
		kubelet.post(t, "/apis/storage.k8s.io/v1/csinodes", csi(mine)).want(t, http.StatusCreated)
		kubelet.post(t, "/apis/storage.k8s.io/v1/csinodes", csi(yours)).forbidden(t, "can only access CSINode with the same name as the requesting node")
	}},
	{"a kubelet can't become somebody else: no Pod of its making runs as another account, and so it gets no token of one", func(t *testing.T, c *cluster) {
		kubelet, mine, _ := nodesWithPods(t, c)
		c.account(t, "admin")
		c.bindCluster(t, "ClusterRole/cluster-admin", "ServiceAccount/admin")
		attack := func(metadata, spec string) map[string]any {
			return manifest(`{metadata: {name: attack%s}, spec: {nodeName: %s, containers: [{name: c, image: i}]%s}}`, metadata, mine.Spec.NodeName, spec)
		}
		const mirror = `, annotations: {kubernetes.io/config.mirror: a}, ownerReferences: [{apiVersion: v1, kind: Node, name: %s, uid: %s, controller: true}]`
		node := c.get(t, "/api/v1/nodes/"+mine.Spec.NodeName).want(t, http.StatusOK)
		mirrored := fmt.Sprintf(mirror, mine.Spec.NodeName, node.text(t, "metadata", "uid"))
		for _, pod := range []map[string]any{
			attack("", ", serviceAccountName: admin"),
			attack(mirrored, ", serviceAccountName: admin"),
			attack(mirrored, ", serviceAccount: admin"),
			attack(mirrored, ", volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t}}]}}]"),
			attack(mirrored, ", volumes: [{name: v, secret: {secretName: yours}}]"),
			attack(", annotations: {kubernetes.io/config.mirror: a}", ""),
		} {
			kubelet.post(t, c.path("v1", "pods"), pod).forbidden(t)
		}
		// Nor does a Pod of the node become another account's.
		kubelet.patch(t, mergePatch, c.path("v1", "pods", "mine", "status"), `{"spec":{"serviceAccountName":"admin"}}`).want(t, http.StatusOK)
		kubelet.post(t, c.path("v1", "serviceaccounts", "admin", "token"),
			authenticationv1.TokenRequest{Spec: boundTo("Pod", "mine")}).forbidden(t, "no relationship found between node")
		kubelet.post(t, c.path("v1", "pods"), attack(mirrored, "")).want(t, http.StatusCreated)
	}},
	{"a kubelet is who has a node's name and is in system:nodes; either alone is nothing", func(t *testing.T, c *cluster) {
		c.as(t, "somebody", "system:nodes").get(t, "/api/v1/services").forbidden(t)
		c.as(t, "system:node:"+c.namespace, "other").get(t, "/api/v1/services").forbidden(t)
	}},
}
