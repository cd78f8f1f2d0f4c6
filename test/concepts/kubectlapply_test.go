package concepts

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// What the API overview says of kubectl: "Upgrading from client-side apply to server-side apply", and back.
func TestKubectlApply(t *testing.T) {
	prove(t, nil, kubectlApplies...)
}

const (
	serverSide  = "kubectl Apply"
	lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
)

// run runs kubectl with an object as its input, and fails the test if it does not succeed.
func (c *cluster) run(t testing.TB, object map[string]any, args string) {
	t.Helper()
	if output, ok := c.kubectl(t, string(asYAML(object)), strings.Fields(args)...); !ok {
		t.Fatalf("kubectl %s: %s", args, output)
	}
}

// fails runs kubectl and fails the test unless it fails, and says this.
func (c *cluster) fails(t testing.TB, object map[string]any, args string, parts ...string) {
	t.Helper()
	output, ok := c.kubectl(t, string(asYAML(object)), strings.Fields(args)...)
	if ok {
		t.Errorf("kubectl %s does not fail: %s", args, output)
	}
	for _, part := range parts {
		if !strings.Contains(output, part) {
			t.Errorf("kubectl %s does not say %q but: %s", args, part, output)
		}
	}
}

var kubectlApplies = []promise{
	{"kubectl apply --server-side applies as the manager kubectl, or that of --field-manager", func(t *testing.T, c *cluster) {
		path := c.path("apps/v1", "deployments", "a")
		c.run(t, deployment("a"), "apply --server-side -f -")
		a := c.get(t, path).ok(t)
		equal(t, managersOf(t, a), []string{"kubectl"})
		if a.value(t, "metadata", "annotations") != nil {
			t.Errorf("it has annotations: %s", a.Body)
		}
		c.run(t, deployment("a"), "apply --server-side --field-manager=mine -f -")
		equal(t, managersOf(t, c.get(t, path)), []string{"kubectl", "mine"})
		c.run(t, with(deployment("a"), 9, "spec", "replicas"), "apply --server-side --force-conflicts --dry-run=server -f -")
		equal(t, c.get(t, path).value(t, "spec", "replicas"), 3.0)
	}},
	{"a conflict names the manager and the field, and --force-conflicts overrides it", func(t *testing.T, c *cluster) {
		path := c.path("apps/v1", "deployments", "a")
		c.run(t, deployment("a"), "apply --server-side --field-manager=other -f -")
		changed := with(deployment("a"), 5, "spec", "replicas")
		c.fails(t, changed, "apply --server-side -f -", `error: Apply failed with 1 conflict: conflict with "other": .spec.replicas`,
			"Please review the fields above--they currently have other managers.")
		equal(t, c.get(t, path).value(t, "spec", "replicas"), 3.0)
		c.run(t, changed, "apply --server-side --force-conflicts -f -")
		equal(t, c.get(t, path).value(t, "spec", "replicas"), 5.0)
	}},
	{"client-side apply records what it applied, and removes what it no longer does", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps", "a")
		c.run(t, data("a: '1', b: '1'"), "apply -f -")
		a := c.get(t, path)
		equal(t, managersOf(t, a), []string{"kubectl-client-side-apply"})
		if !strings.Contains(a.text(t, "metadata", "annotations", lastApplied), `"data":{"a":"1","b":"1"}`) {
			t.Errorf("the annotations are %v", a.value(t, "metadata", "annotations"))
		}
		c.patch(t, mergePatch, path, `{"data":{"z":"9"}}`).ok(t)
		c.run(t, data("a: '2'"), "apply -f -")
		equal(t, c.get(t, path).value(t, "data"), map[string]any{"a": "2", "z": "9"})
	}},
	{"what is managed by client-side apply passes to server-side apply without conflicts", func(t *testing.T, c *cluster) {
		path := c.path("apps/v1", "deployments", "a")
		c.run(t, deployment("a"), "apply -f -")
		c.run(t, with(deployment("a"), 5, "spec", "replicas"), "apply --server-side -f -")
		a := c.get(t, path)
		equal(t, a.value(t, "spec", "replicas"), 5.0)
		equal(t, managersOf(t, a), []string{"kubectl", "kubectl-last-applied"})
		equal(t, owned(t, a, "kubectl-last-applied Apply"), []string{".metadata.annotations." + lastApplied})
		// So does the removal of a field.
		bare := deployment("a")
		unstructured.RemoveNestedField(bare, "spec", "replicas")
		c.run(t, bare, "apply --server-side -f -")
		equal(t, c.get(t, path).value(t, "spec", "replicas"), 1.0)
	}},
	{"what was changed since client-side apply, as by kubectl scale, conflicts on server-side apply", func(t *testing.T, c *cluster) {
		path := c.path("apps/v1", "deployments", "a")
		c.run(t, deployment("a"), "apply -f -")
		c.run(t, nil, "scale deployment a --replicas=7")
		c.fails(t, deployment("a"), "apply --server-side -f -",
			`conflict with "kubectl" with subresource "scale" using apps/v1: .spec.replicas`)
		equal(t, c.get(t, path).value(t, "spec", "replicas"), 7.0)
		c.run(t, deployment("a"), "apply --server-side --force-conflicts -f -")
		equal(t, c.get(t, path).value(t, "spec", "replicas"), 3.0)
	}},
	{"with an own --field-manager changes conflict with client-side apply, and what is equal passes over", func(t *testing.T, c *cluster) {
		path := c.path("apps/v1", "deployments", "a")
		c.run(t, deployment("a"), "apply -f -")
		c.fails(t, with(deployment("a"), 5, "spec", "replicas"), "apply --server-side --field-manager=my-manager -f -",
			`conflict with "kubectl-client-side-apply" using apps/v1: .spec.replicas`)
		equal(t, managersOf(t, c.get(t, path)), []string{"kubectl-client-side-apply"})
		c.run(t, deployment("a"), "apply --server-side --field-manager=my-manager -f -")
		equal(t, managersOf(t, c.get(t, path)), []string{"my-manager"})
	}},
	{"server-side apply keeps what client-side apply recorded up to date, so that one may go back", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps", "a")
		c.run(t, data("a: '1', b: '1'"), "apply -f -")
		c.run(t, data("a: '2', b: '1', c: '1'"), "apply --server-side -f -")
		a := c.get(t, path)
		if !strings.Contains(a.text(t, "metadata", "annotations", lastApplied), `"data":{"a":"2","b":"1","c":"1"}`) {
			t.Errorf("the annotations are %v", a.value(t, "metadata", "annotations"))
		}
		equal(t, owned(t, a, serverSide)[:3], []string{".data.a", ".data.b", ".data.c"})
		c.run(t, data("b: '3'"), "apply -f -")
		equal(t, c.get(t, path).value(t, "data"), map[string]any{"b": "3"})
	}},
	{"what was made by server-side apply may be managed by client-side apply from then on", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps", "a")
		c.run(t, data("a: '1', b: '1'"), "apply --server-side -f -")
		c.run(t, data("a: '2', b: '1'"), "apply -f -")
		c.run(t, data("a: '3'"), "apply -f -")
		equal(t, c.get(t, path).value(t, "data"), map[string]any{"a": "3"})
	}},
	{"kubectl apply changes custom resources by merge patches, and applies them on the server, too", func(t *testing.T, c *cluster) {
		groupVersion := c.widgets(t, structural)
		path := c.path(groupVersion, "widgets", "w")
		c.run(t, spec(groupVersion, "replicas: 1, free: {a: 1, b: 2}"), "apply -f -")
		c.run(t, spec(groupVersion, "free: {a: 3}"), "apply -f -")
		equal(t, c.get(t, path).ok(t).value(t, "spec"), map[string]any{"free": map[string]any{"a": 3.0}})
		c.run(t, spec(groupVersion, "replicas: 2, free: {a: 4}"), "apply --server-side -f -")
		equal(t, c.get(t, path).value(t, "spec"), map[string]any{"replicas": 2.0, "free": map[string]any{"a": 4.0}})
	}},
}
