package serve

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/everykind"
)

// dry checks that the operations of a dry run see each other, that admission sees a dry run, and that nothing is written.
func (f *operated) dry(t *testing.T) {
	all := []operation{
		create(`{apiVersion: v1, kind: Namespace, metadata: {name: dry, labels: {dry: "yes"}}}`),
		create(`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: dry}, data: {a: b}}`),
		change(`{apiVersion: v1, kind: ConfigMap, name: a, namespace: dry}`, `{data: {c: d}}`),
	}
	dryRun := map[string]string{"dryRun": "All"}
	answer, err := transactAs(t.Context(), f.Client, "dry", dryRun, all...)
	harness.Must(t, err)
	if got := string(answer.Status.Operations[2].Object); !strings.Contains(got, `"data":{"a":"b","c":"d"}`) || strings.Contains(got, `"resourceVersion"`) || answer.Status.ResourceVersion != "" {
		t.Errorf("a dry run answers with %s at %q", got, answer.Status.ResourceVersion)
	}
	if _, err := f.Client.CoreV1().Namespaces().Get(t.Context(), "dry", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after a dry run, its namespace: %v", err)
	}
	_, err = transactAs(t.Context(), f.Client, "dry", nil, all...) // the name is free
	harness.Must(t, err)
	f.commits(t,
		create(`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: dry}, spec: {
			matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}], namespaceSelector: {matchLabels: {dry: "yes"}}},
			validations: [{expression: "request.dryRun", message: only in a dry run}]}}`),
		create(`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: dry}, spec: {policyName: dry, validationActions: [Deny]}}`))
	made := create(`{apiVersion: v1, kind: ConfigMap, metadata: {name: made, namespace: dry}}`)
	harness.Retry(t, "the policy is in effect", func() error {
		_, err := f.Client.CoreV1().ConfigMaps("dry").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "c"}}, metav1.CreateOptions{})
		if err == nil {
			return fmt.Errorf("it is not")
		}
		return nil
	})
	if _, err := transactAs(t.Context(), f.Client, "", dryRun, made); err != nil {
		t.Errorf("admission does not see a dry run: %v", err)
	}
	f.refuses(t, 0, metav1.StatusReasonInvalid, "only in a dry run", made)
	// The policy selects a namespace by the labels that it is created with in the same transaction.
	within := create(`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: dry-too}}`)
	f.commits(t, create(`{apiVersion: v1, kind: Namespace, metadata: {name: dry-not}}`), create(`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: dry-not}}`))
	f.refuses(t, 1, metav1.StatusReasonInvalid, "only in a dry run", create(`{apiVersion: v1, kind: Namespace, metadata: {name: dry-too, labels: {dry: "yes"}}}`), within)
}

// rights checks that each operation is authorized alone, and that nobody gives rights that they lack.
func (f *operated) rights(t *testing.T) {
	makeNamespace(t, f.Client, "rights")
	users := &undone{kubeconfig: f.kubeconfig}
	editor := client(t, users.as(t, "tx-editor"))
	for name, role := range map[string]string{"edit": "edit", "roles": "tx-roles"} {
		_, err := f.Client.RbacV1().RoleBindings("rights").Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: role}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "tx-editor"}}}, metav1.CreateOptions{})
		harness.Must(t, err)
	}
	f.commits(t, create(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: tx-roles}, rules: [{apiGroups: [rbac.authorization.k8s.io], resources: [roles, rolebindings], verbs: [create]}]}`))
	try := func(operations ...operation) error {
		t.Helper()
		body, err := json.Marshal(map[string]any{"apiVersion": "history.sqube.io/v1alpha1", "kind": "Transaction", "spec": map[string]any{"operations": operations}})
		harness.Must(t, err)
		return editor.CoreV1().RESTClient().Post().AbsPath("/apis/history.sqube.io/v1alpha1/namespaces/rights/transactions").Body(body).Do(t.Context()).Error()
	}
	harness.Retry(t, "the rights are in effect", func() error { return try() })
	own := create(`{apiVersion: v1, kind: ConfigMap, metadata: {name: own}}`) // in the namespace of the request
	role := func(name, resource string) operation {
		return create(fmt.Sprintf(`{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: %s}, rules: [{apiGroups: [""], resources: [%s], verbs: [get]}]}`, name, resource))
	}
	binding := func(role string) operation {
		return create(fmt.Sprintf(`{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: %[1]s}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: %[1]s}, subjects: [{kind: User, name: jane}]}`, role))
	}
	for want, operations := range map[string][]operation{
		"operations[1], create ConfigMap default/other: configmaps is forbidden: User": {own, create(`{apiVersion: v1, kind: ConfigMap, metadata: {name: other, namespace: default}}`)},
		"operations[1], create Node other: nodes is forbidden: User":                   {own, create(`{apiVersion: v1, kind: Node, metadata: {name: other}}`)},
		"is attempting to grant RBAC permissions not currently held":                   {own, role("more", "nodes")},
	} {
		if err := try(operations...); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if _, err := f.Client.CoreV1().ConfigMaps("rights").Get(t.Context(), "own", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after refused transactions, what was allowed of them: %v", err)
	}
	if err := try(own, role("less", "configmaps"), binding("less")); err != nil {
		t.Error(err)
	}
	if err := editor.CoreV1().RESTClient().Post().AbsPath("/apis/history.sqube.io/v1alpha1/transactions").Body([]byte(`{"apiVersion":"history.sqube.io/v1alpha1","kind":"Transaction"}`)).Do(t.Context()).Error(); !apierrors.IsForbidden(err) {
		t.Errorf("a transaction in the whole cluster: %v", err)
	}
}

// names checks that a name is used once, by whomever, and that nothing is done for a second one.
func (f *operated) names(t *testing.T) {
	once := create(`{apiVersion: v1, kind: ConfigMap, metadata: {generateName: once-, namespace: default}}`)
	users := &undone{kubeconfig: f.kubeconfig}
	other := client(t, users.as(t, "another", "system:masters"))
	answer, err := transactAs(t.Context(), f.Client, "once", nil, once)
	harness.Must(t, err)
	for _, c := range []*operated{f, {Client: other}} {
		if _, err := transactAs(t.Context(), c.Client, "once", nil, once); !apierrors.IsAlreadyExists(err) || !strings.Contains(err.Error(), "kubectl get transaction once") {
			t.Errorf("with the name of another transaction: %v", err)
		}
	}
	list, err := f.Client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	harness.Must(t, err)
	if n := len(slices.DeleteFunc(list.Items, func(m corev1.ConfigMap) bool { return !strings.HasPrefix(m.Name, "once-") })); n != 1 {
		t.Errorf("it was done %d times", n)
	}
	get := func(c *operated) (known done, err error) {
		text, err := c.Client.CoreV1().RESTClient().Get().AbsPath("/apis/history.sqube.io/v1alpha1/transactions/once").Do(t.Context()).Raw()
		if err != nil {
			return known, err
		}
		return known, json.Unmarshal(text, &known)
	}
	known, err := get(f)
	harness.Must(t, err)
	if got, want := known.Status.Operations[0], answer.Status.Operations[0]; got.Name != want.Name || got.ResourceVersion != want.ResourceVersion || known.Status.ResourceVersion != answer.Status.ResourceVersion {
		t.Errorf("the record has %+v, the answer had %+v", known.Status, answer.Status)
	}
	if _, err := get(&operated{Client: other}); !apierrors.IsNotFound(err) {
		t.Errorf("another user gets the record: %v", err)
	}
	if _, err := transactAs(t.Context(), f.Client, "No Name", nil); !apierrors.IsInvalid(err) {
		t.Errorf("an invalid name: %v", err)
	}
}

// limits checks the bounds of one transaction: far more than another request may have, and not more than the flags say.
func (f *operated) limits(t *testing.T) {
	large := func(i, size int) operation {
		o := create(fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {name: large-%d, namespace: default}}`, i))
		o["object"].(map[string]any)["data"] = map[string]string{"a": strings.Repeat("x", size)}
		return o
	}
	var some, many, small []operation
	for i := range 5 {
		some = append(some, large(i, 1<<20-100))
	}
	f.commits(t, some...)
	for i := range 17 {
		many = append(many, large(i, 1<<20-100))
	}
	if _, err := transactAs(t.Context(), f.Client, "", nil, many...); !apierrors.IsRequestEntityTooLargeError(err) {
		t.Errorf("17 MiB: %v", err)
	}
	for i := range 1001 {
		small = append(small, large(i, 1))
	}
	if _, err := transactAs(t.Context(), f.Client, "", nil, small...); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "must have at most 1000 items") {
		t.Errorf("1001 operations: %v", err)
	}
	for want, wrong := range map[string]operation{
		"spec.operations[0].verb":        {"verb": "replace", "object": parsed(`{apiVersion: v1, kind: ConfigMap}`)},
		"spec.operations[0].subresource": change(`{apiVersion: v1, kind: Pod, name: p, namespace: default}`, `{}`).of("binding"),
		"no matches for kind":            create(`{apiVersion: authentication.k8s.io/v1, kind: TokenReview, metadata: {name: t}}`),
		"spec.operations[0].target":      {"verb": "delete"},
	} {
		if _, err := transactAs(t.Context(), f.Client, "", nil, wrong); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// definitions checks that objects of a definition are refused in its transaction, and can be written in the next one.
func (f *operated) definitions(t *testing.T) {
	definition := create(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: parts.tx.example.com}, spec: {group: tx.example.com, scope: Namespaced, names: {plural: parts, singular: part, kind: Part, listKind: PartList},
		versions: [{name: v1, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`)
	part := create(`{apiVersion: tx.example.com/v1, kind: Part, metadata: {name: one, namespace: default}}`)
	_, err := transactAs(t.Context(), f.Client, "", nil, definition, part)
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "operations[0] defines this kind") {
		t.Errorf("a definition and its first object: %v", err)
	}
	f.commits(t, definition)
	target := `{apiVersion: tx.example.com/v1, kind: Part, name: one, namespace: default}`
	harness.Retry(t, "the definition is established", func() error {
		_, err := transactAs(t.Context(), f.Client, "", nil, part, change(target, `{spec: {a: 1}}`), change(target, `{status: {b: 2}}`).of("status"))
		return err
	})
	// The definition may be written again with its objects.
	f.commits(t, change(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, name: parts.tx.example.com}`, `{metadata: {labels: {a: b}}}`), remove(target), part)
}

// deletions checks what is deleted later, or by another write.
func (f *operated) deletions(t *testing.T) {
	c := f.Client.CoreV1()
	makeNamespace(t, f.Client, "deletions")
	target := `{apiVersion: v1, kind: ConfigMap, name: held, namespace: deletions}`
	held := create(`{apiVersion: v1, kind: ConfigMap, metadata: {name: held, namespace: deletions, finalizers: [example.com/a]}}`)
	f.commits(t, held, remove(target), change(target, `{data: {a: b}}`))
	m, err := c.ConfigMaps("deletions").Get(t.Context(), "held", metav1.GetOptions{})
	harness.Must(t, err)
	if m.DeletionTimestamp == nil || m.Data["a"] != "b" {
		t.Errorf("what waits for a finalizer is %v", m)
	}
	f.refuses(t, 0, metav1.StatusReasonAlreadyExists, "already exists", held)
	f.commits(t, change(target, `{metadata: {finalizers: null}}`), held, change(target, `{data: {c: d}}`))
	again, err := c.ConfigMaps("deletions").Get(t.Context(), "held", metav1.GetOptions{})
	harness.Must(t, err)
	if again.UID == m.UID || again.Data["c"] != "d" {
		t.Errorf("what was deleted and created again is %v", again)
	}
	f.refuses(t, 1, metav1.StatusReasonConflict, "the UID in the precondition", change(target, `{data: {e: f}}`), operation{"verb": "delete", "target": parsed(target), "preconditions": map[string]string{"uid": string(m.UID)}})

	pod := create(`{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: deletions}, spec: {serviceAccountName: s, nodeName: node, containers: [{name: c, image: i}]}}`)
	f.commits(t, create(`{apiVersion: v1, kind: ServiceAccount, metadata: {name: s, namespace: deletions}}`), pod, remove(`{apiVersion: v1, kind: Pod, name: p, namespace: deletions}`))
	p, err := c.Pods("deletions").Get(t.Context(), "p", metav1.GetOptions{})
	if err != nil || p.DeletionTimestamp == nil || *p.DeletionGracePeriodSeconds != 30 {
		t.Errorf("a Pod that was deleted on a node is %v, %v", p, err)
	}
	now := remove(`{apiVersion: v1, kind: Pod, name: p, namespace: deletions}`)
	now["gracePeriodSeconds"] = 0
	f.commits(t, now)
	f.commits(t, create(`{apiVersion: v1, kind: Namespace, metadata: {name: short}}`),
		create(`{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: short}}`), remove(`{apiVersion: v1, kind: Namespace, name: short}`))
	n, err := c.Namespaces().Get(t.Context(), "short", metav1.GetOptions{})
	if err == nil && n.DeletionTimestamp == nil || err != nil && !apierrors.IsNotFound(err) {
		t.Errorf("a namespace that was created and deleted is %v, %v", n, err)
	}
}

// audited checks that what is recorded of operations says what became of them, with the id of their transaction.
func (f *operated) audited(t *testing.T) {
	makeNamespace(t, f.Client, "audited")
	one := create(`{apiVersion: v1, kind: ConfigMap, metadata: {name: one, namespace: audited}}`)
	if _, err := transactAs(t.Context(), f.Client, "audit-refused", nil, one, one); !apierrors.IsAlreadyExists(err) {
		t.Errorf("the same twice: %v", err)
	}
	if _, err := transactAs(t.Context(), f.Client, "audit-dry", map[string]string{"dryRun": "All"}, one); err != nil {
		t.Error(err)
	}
	_, err := transactAs(t.Context(), f.Client, "audit-committed", nil, one)
	harness.Must(t, err)
	events := map[string][]auditv1.Event{}
	harness.Retry(t, "the transactions are in the audit log", func() error {
		text, err := os.ReadFile(f.audit)
		harness.Must(t, err)
		clear(events)
		for line := range strings.Lines(string(text)) {
			var e auditv1.Event
			if json.Unmarshal([]byte(line), &e) == nil && e.Stage == auditv1.StageResponseComplete && e.Verb == "create" {
				events[e.Annotations["history.sqube.io/transaction"]] = append(events[e.Annotations["history.sqube.io/transaction"]], e)
			}
		}
		if len(events["audit-committed"]) < 2 {
			return fmt.Errorf("it has %d events", len(events["audit-committed"]))
		}
		return nil
	})
	for name, want := range map[string]string{"audit-refused": "configmaps 201 refused, configmaps 409 refused, transactions 409", "audit-dry": "configmaps 201 dry run, transactions 201", "audit-committed": "configmaps 201 committed, transactions 201"} {
		var got []string
		for _, e := range events[name] {
			got = append(got, strings.TrimSpace(fmt.Sprint(e.ObjectRef.Resource, " ", e.ResponseStatus.Code, " ", e.Annotations["history.sqube.io/transaction-outcome"])))
			if e.AuditID != events[name][0].AuditID || e.User.Username != "kubernetes-admin" {
				t.Errorf("%s has the audit ids %s and %s of %s", name, events[name][0].AuditID, e.AuditID, e.User.Username)
			}
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s has the events %s, want %s", name, got, want)
		}
	}
	for _, e := range events[""] {
		if e.ObjectRef != nil && e.ObjectRef.Namespace == "audited" && e.ObjectRef.Name == "one" {
			t.Errorf("%s of no transaction is recorded", e.RequestURI)
		}
	}
}

// ownTests are the kinds that other objects would depend on at once.
var ownTests = []string{
	"CustomResourceDefinition", "APIService", "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "ValidatingAdmissionPolicy",
	"ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding",
}

// kinds writes objects of every built-in kind: creates them, applies, writes their status, and deletes them.
func (f *operated) kinds(t *testing.T) {
	objects, err := everykind.All()
	harness.Must(t, err)
	statuses := map[string]bool{} // the kinds that have one
	_, all, err := f.Client.Discovery().ServerGroupsAndResources()
	harness.Must(t, err)
	for _, list := range all {
		for _, r := range list.APIResources {
			if strings.HasSuffix(r.Name, "/status") && slices.Contains(r.Verbs, "patch") {
				statuses[list.GroupVersion+" "+r.Kind] = true
			}
		}
	}
	var made, deleted []operation
	known := map[string]bool{}
	for _, o := range objects {
		name := o.GroupVersionKind().String() + o.GetNamespace() + "/" + o.GetName()
		if strings.HasSuffix(o.GroupVersionKind().Group, "example.com") || slices.Contains(ownTests, o.GetKind()) || known[name] || o.GetName() == "default" && o.GetNamespace() != "prod" {
			continue
		}
		known[name] = true
		target := map[string]any{"apiVersion": o.GetAPIVersion(), "kind": o.GetKind(), "namespace": o.GetNamespace(), "name": o.GetName()}
		label := &unstructured.Unstructured{Object: map[string]any{}}
		label.SetGroupVersionKind(o.GroupVersionKind())
		label.SetNamespace(o.GetNamespace())
		label.SetName(o.GetName())
		label.SetLabels(map[string]string{"applied": "yes"})
		made = append(made, operation{"verb": "create", "object": o.Object})
		if o.GetKind() != "Event" { // its metadata can't change
			made = append(made, operation{"verb": "apply", "object": label.Object, "fieldManager": "f", "force": true})
		}
		if statuses[o.GetAPIVersion()+" "+o.GetKind()] {
			made = append(made, operation{"verb": "patch", "target": target, "patch": map[string]any{"status": map[string]any{}}, "subresource": "status"})
		}
		deleted = append(deleted, operation{"verb": "delete", "target": target})
	}
	slices.Reverse(deleted)
	answer := f.commits(t, made...)
	for i, r := range answer.Status.Operations {
		if _, err := strconv.Atoi(r.ResourceVersion); err != nil || made[i]["verb"] == "apply" && !strings.Contains(string(r.Object), `"applied":"yes"`) {
			t.Errorf("operation %v answers %q %s", made[i], r.ResourceVersion, r.Object)
		}
	}
	f.commits(t, deleted...)
}

// contended has more users than a priority level has seats add to the same objects, each with transactions whose operations need no seats.
func (f *operated) contended(t *testing.T) {
	f.commits(t,
		create(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: movers}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: movers}]}`),
		create(`{apiVersion: flowcontrol.apiserver.k8s.io/v1, kind: PriorityLevelConfiguration, metadata: {name: movers}, spec: {type: Limited, limited: {nominalConcurrencyShares: 1, lendablePercent: 0, borrowingLimitPercent: 0, limitResponse: {type: Queue, queuing: {queues: 8, handSize: 1, queueLengthLimit: 50}}}}}`),
		create(`{apiVersion: flowcontrol.apiserver.k8s.io/v1, kind: FlowSchema, metadata: {name: movers}, spec: {matchingPrecedence: 60, priorityLevelConfiguration: {name: movers}, rules: [{subjects: [{kind: Group, group: {name: movers}}], resourceRules: [{verbs: ["*"], apiGroups: ["*"], resources: ["*"], namespaces: ["*"], clusterScope: true}]}]}}`),
		create(`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: default}, data: {amount: "100"}}`),
		create(`{apiVersion: v1, kind: ConfigMap, metadata: {name: b, namespace: default}, data: {amount: "0"}}`))
	harness.Retry(t, "the level is in effect", func() error {
		text, err := f.Client.CoreV1().RESTClient().Get().AbsPath("/debug/api_priority_and_fairness/dump_priority_levels").Do(t.Context()).Raw()
		if err == nil && !strings.Contains(string(text), "\nmovers,") {
			err = fmt.Errorf("it is not: %s", text)
		}
		return err
	})
	const movers, moves = 8, 3
	done := make(chan error)
	for i := range movers {
		c := client(t, (&undone{kubeconfig: f.kubeconfig}).as(t, fmt.Sprint("mover-", i), "movers"))
		go func() { done <- move(t, c, moves) }()
	}
	for range movers {
		harness.Must(t, <-done)
	}
	if a, b := held(t, f.Client, "a"), held(t, f.Client, "b"); a != 100-movers*moves || b != movers*moves {
		t.Errorf("after %d moves, a has %d and b has %d", movers*moves, a, b)
	}
}

// held returns what a ConfigMap says that it has.
func held(t *testing.T, c kubernetes.Interface, name string) int {
	t.Helper()
	m, err := c.CoreV1().ConfigMaps("default").Get(t.Context(), name, metav1.GetOptions{})
	harness.Must(t, err)
	n, err := strconv.Atoi(m.Data["amount"])
	harness.Must(t, err)
	return n
}

// move moves one from a to b, so often, whatever others do meanwhile.
func move(t *testing.T, c kubernetes.Interface, times int) error {
	for range times {
		for {
			var all []operation
			for name, by := range map[string]int{"a": -1, "b": 1} {
				m, err := c.CoreV1().ConfigMaps("default").Get(t.Context(), name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				n, err := strconv.Atoi(m.Data["amount"])
				if err != nil {
					return err
				}
				m.Data["amount"], m.ManagedFields, m.TypeMeta = strconv.Itoa(n+by), nil, metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}
				all = append(all, operation{"verb": "update", "object": m})
			}
			_, err := transactAs(t.Context(), c, "", nil, all...)
			if err == nil {
				break
			}
			if !apierrors.IsConflict(err) {
				return err
			}
		}
	}
	return nil
}

// TestTransactionsOff serves none.
func TestTransactionsOff(t *testing.T) {
	t.Parallel()
	s := serve(t, []string{"--transactions=false"})
	c := client(t, s.Kubeconfig)
	if _, err := transactAs(t.Context(), c, "", nil); !apierrors.IsNotFound(err) {
		t.Errorf("with --transactions=false: %v", err)
	}
	resources, err := c.Discovery().ServerResourcesForGroupVersion("history.sqube.io/v1alpha1")
	harness.Must(t, err)
	for _, r := range resources.APIResources {
		if r.Kind == "Transaction" {
			t.Error("discovery has it")
		}
	}
}

// auditFlags are those of a server that writes an audit log, and its path.
func auditFlags(t *testing.T) ([]string, string) {
	policy, log := filepath.Join(t.TempDir(), "policy.yaml"), filepath.Join(t.TempDir(), "audit.log")
	harness.Must(t, os.WriteFile(policy, []byte(`{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [{"level": "RequestResponse"}]}`), 0o600))
	return []string{"--audit-policy-file", policy, "--audit-log-path", log}, log
}
