package apply

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sqube/sqube/test/concepts/kit"
)

const (
	serverSide  = "kubectl Apply"
	lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
)

// run runs kubectl with an object as its input, and fails the test if kubectl fails.
func run(t testing.TB, c *kit.Cluster, object map[string]any, args string) {
	t.Helper()
	if output, ok := c.Kubectl(t, string(kit.JSON(object)), strings.Fields(args)...); !ok {
		t.Fatalf("kubectl %s: %s", args, output)
	}
}

// fails runs kubectl and fails the test unless kubectl fails with these messages.
func fails(t testing.TB, c *kit.Cluster, object map[string]any, args string, parts ...string) {
	t.Helper()
	output, ok := c.Kubectl(t, string(kit.JSON(object)), strings.Fields(args)...)
	if ok {
		t.Errorf("kubectl %s does not fail: %s", args, output)
	}
	for _, part := range parts {
		if !strings.Contains(output, part) {
			t.Errorf("kubectl %s does not print %q but: %s", args, part, output)
		}
	}
}

var kubectlApplies = []kit.Promise{
	{Statement: "client-side apply records what it applied, and removes what it no longer applies", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps", "a")
		run(t, c, data("a: '1', b: '1'"), "apply -f -")
		a := c.Get(t, path)
		kit.Equal(t, managersOf(t, a), []string{"kubectl-client-side-apply"})
		if !strings.Contains(a.Text(t, "metadata", "annotations", lastApplied), `"data":{"a":"1","b":"1"}`) {
			t.Errorf("the annotations are %v", a.Value(t, "metadata", "annotations"))
		}
		c.Patch(t, kit.MergePatch, path, `{"data":{"z":"9"}}`).OK(t)
		run(t, c, data("a: '2'"), "apply -f -")
		kit.Equal(t, c.Get(t, path).Value(t, "data"), map[string]any{"a": "2", "z": "9"})
	}},
	{Statement: "fields managed by client-side apply move to server-side apply without conflicts", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("apps/v1", "deployments", "a")
		run(t, c, kit.Deployment("a"), "apply -f -")
		run(t, c, kit.With(kit.Deployment("a"), 5, "spec", "replicas"), "apply --server-side -f -")
		a := c.Get(t, path)
		kit.Equal(t, a.Value(t, "spec", "replicas"), 5.0)
		kit.Equal(t, managersOf(t, a), []string{"kubectl", "kubectl-last-applied"})
		kit.Equal(t, owned(t, a, "kubectl-last-applied Apply"), []string{".metadata.annotations." + lastApplied})
		// So does the removal of a field.
		bare := kit.Deployment("a")
		unstructured.RemoveNestedField(bare, "spec", "replicas")
		run(t, c, bare, "apply --server-side -f -")
		kit.Equal(t, c.Get(t, path).Value(t, "spec", "replicas"), 1.0)
	}},
	{Statement: "changes since client-side apply, such as by kubectl scale, conflict with server-side apply", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("apps/v1", "deployments", "a")
		run(t, c, kit.Deployment("a"), "apply -f -")
		run(t, c, nil, "scale deployment a --replicas=7")
		fails(t, c, kit.Deployment("a"), "apply --server-side -f -",
			`conflict with "kubectl" with subresource "scale" using apps/v1: .spec.replicas`)
		kit.Equal(t, c.Get(t, path).Value(t, "spec", "replicas"), 7.0)
		run(t, c, kit.Deployment("a"), "apply --server-side --force-conflicts -f -")
		kit.Equal(t, c.Get(t, path).Value(t, "spec", "replicas"), 3.0)
	}},
	{Statement: "with another --field-manager, changes conflict with client-side apply, and equal values do not", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("apps/v1", "deployments", "a")
		run(t, c, kit.Deployment("a"), "apply -f -")
		fails(t, c, kit.With(kit.Deployment("a"), 5, "spec", "replicas"), "apply --server-side --field-manager=my-manager -f -",
			`conflict with "kubectl-client-side-apply" using apps/v1: .spec.replicas`)
		kit.Equal(t, managersOf(t, c.Get(t, path)), []string{"kubectl-client-side-apply"})
		run(t, c, kit.Deployment("a"), "apply --server-side --field-manager=my-manager -f -")
		kit.Equal(t, managersOf(t, c.Get(t, path)), []string{"my-manager"})
	}},
	{Statement: "server-side apply updates what client-side apply recorded, so that users may switch back", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps", "a")
		run(t, c, data("a: '1', b: '1'"), "apply -f -")
		run(t, c, data("a: '2', b: '1', c: '1'"), "apply --server-side -f -")
		a := c.Get(t, path)
		if !strings.Contains(a.Text(t, "metadata", "annotations", lastApplied), `"data":{"a":"2","b":"1","c":"1"}`) {
			t.Errorf("the annotations are %v", a.Value(t, "metadata", "annotations"))
		}
		kit.Equal(t, owned(t, a, serverSide)[:3], []string{".data.a", ".data.b", ".data.c"})
		run(t, c, data("b: '3'"), "apply -f -")
		kit.Equal(t, c.Get(t, path).Value(t, "data"), map[string]any{"b": "3"})
	}},
	{Statement: "objects created by server-side apply may later be managed by client-side apply", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps", "a")
		run(t, c, data("a: '1', b: '1'"), "apply --server-side -f -")
		run(t, c, data("a: '2', b: '1'"), "apply -f -")
		run(t, c, data("a: '3'"), "apply -f -")
		kit.Equal(t, c.Get(t, path).Value(t, "data"), map[string]any{"a": "3"})
	}},
	{Statement: "kubectl apply changes custom resources by merge patches, and also by server-side apply", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, kit.StructuralSchema)
		path := c.Path(groupVersion, "widgets", "w")
		run(t, c, spec(groupVersion, "replicas: 1, free: {a: 1, b: 2}"), "apply -f -")
		run(t, c, spec(groupVersion, "free: {a: 3}"), "apply -f -")
		kit.Equal(t, c.Get(t, path).OK(t).Value(t, "spec"), map[string]any{"free": map[string]any{"a": 3.0}})
		run(t, c, spec(groupVersion, "replicas: 2, free: {a: 4}"), "apply --server-side -f -")
		kit.Equal(t, c.Get(t, path).Value(t, "spec"), map[string]any{"replicas": 2.0, "free": map[string]any{"a": 4.0}})
	}},
}
