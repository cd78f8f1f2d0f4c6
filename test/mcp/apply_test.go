package mcp

import (
	"errors"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestAgents has agents look, try, apply and undo, on each engine, at a server on which somebody has left texts that tell agents to do harm.
func TestAgents(t *testing.T) {
	t.Parallel()
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		c := start(t, "--datastore", engine.Datastore)
		c.looks(t)
		c.applies(t)
		c.undoes(t)
	})
}

// looks reads with an agent that may not apply anything.
func (c *cluster) looks(t *testing.T) {
	a := c.agent(t, nil, "--as", "kubernetes-admin", "--as-group", "system:masters")
	tools, err := a.ListTools(t.Context(), nil)
	harness.Must(t, err)
	for _, tool := range tools.Tools {
		if !tool.Annotations.ReadOnlyHint {
			t.Errorf("without --allow-apply there is the tool %s", tool.Name)
		}
	}
	text := a.shows("objects", arguments{"resource": "cm", "name": "notes", "namespace": "shop"}, "color: red")
	mark, _, found := strings.Cut(strings.TrimPrefix(text, "<"), ">")
	if !found || !strings.HasPrefix(mark, "data-") || !strings.HasSuffix(text, "</"+mark+">") || strings.Count(text, mark) != 2 {
		t.Errorf("what the cluster says is not marked:\n%s", text)
	}
	a.shows("objects", arguments{"resource": "secrets", "all_namespaces": true}, "NAMESPACE", "bank", "door")
	a.shows("objects", arguments{"resource": "secret", "name": "door", "namespace": "shop"}, "code: (12 bytes)")
	a.shows("changes", arguments{"resource": "secrets", "name": "door", "namespace": "shop"}, "update", ".data.code")
	a.shows("changes", arguments{"namespace": "shop", "user": "kubernetes-admin", "kind": "ConfigMap"}, "configmap/notes", "create")
	a.shows("blame", arguments{"resource": "secret", "name": "door", "namespace": "shop"}, "code: (12 bytes)")
	a.shows("diff", arguments{"resource": "secret", "name": "door", "namespace": "shop", "from": c.before(t)}, "-  code: (12 bytes, before)", "+  code: (12 bytes, after)")
	a.shows("objects", arguments{"resource": "secret", "name": "door", "namespace": "shop", "at": c.before(t)}, "code: (12 bytes)")
	a.shows("events", arguments{"namespace": "shop"}, "No Events")
	a.fails("logs", arguments{"pod": "web", "namespace": "shop"}, "not found")
	first := a.shows("objects", arguments{"resource": "clusterroles", "limit": 3}, "cluster-admin ", "page=")
	_, rest, _ := strings.Cut(first, `page="`)
	token, _, _ := strings.Cut(rest, `"`)
	if second := a.shows("objects", arguments{"resource": "clusterroles", "limit": 3, "page": token}, "NAME"); strings.Contains(second, "cluster-admin ") {
		t.Errorf("the second page is\n%s\nthe first\n%s", second, first)
	}
	long, _ := a.call("objects", arguments{"resource": "clusterrole", "name": "cluster-admin"})
	if len(long) > 25<<10 {
		t.Errorf("an answer has %d bytes", len(long))
	}
	if name := a.try(arguments{"manifest": configMap("shop", "blue")}); name != "" || c.color(t, "shop") != "" {
		t.Errorf("a trial is %q, and the cluster has %q", name, c.color(t, "shop"))
	}
	c.safes(t)
	a.shows("objects", arguments{"resource": "safes.example.com", "namespace": "shop"}, "NAME", "first")
	a.shows("objects", arguments{"resource": "safe", "name": "first", "namespace": "shop"}, "code: (12 bytes)", "owner: jane")
	stranger := c.agent(t, nil, "--as", "nobody")
	stranger.fails("objects", arguments{"resource": "configmaps", "namespace": "shop"}, "forbidden")
}

// safe defines objects with a secret value, which their table would show, and safeOfJane is one.
const (
	safe = `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "safes.example.com"}, "spec": {
		"group": "example.com", "scope": "Namespaced", "names": {"kind": "Safe", "plural": "safes", "singular": "safe"}, "versions": [{"name": "v1", "served": true, "storage": true,
		"additionalPrinterColumns": [{"name": "Code", "type": "string", "jsonPath": ".spec.code"}],
		"schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {
			"owner": {"type": "string"}, "code": {"type": "string", "format": "password"}}}}}}}]}}`
	safeOfJane = `{"apiVersion": "example.com/v1", "kind": "Safe", "metadata": {"name": "first"}, "spec": {"owner": "jane", "code": "password-one"}}`
)

// safes makes an object with a secret value.
func (c *cluster) safes(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	harness.Must(t, c.CoreV1().RESTClient().Post().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").Body([]byte(safe)).Do(ctx).Error())
	harness.Retry(t, "making a Safe", func() error {
		return c.CoreV1().RESTClient().Post().AbsPath("/apis/example.com/v1/namespaces/shop/safes").Body([]byte(safeOfJane)).Do(ctx).Error()
	})
}

// before returns the revision that the Secret in shop had first.
func (c *cluster) before(t *testing.T) string {
	t.Helper()
	created, _, _ := sqube.Run(t, []string{"changes", "secrets", "door", "-n", "shop", "--kubeconfig", c.Kubeconfig, "--operation", "create"})
	lines := strings.Split(strings.TrimSpace(created), "\n")
	return strings.Fields(lines[len(lines)-1])[0]
}

// applies asks for harm in every way, and for what is allowed.
func (c *cluster) applies(t *testing.T) {
	p := &person{answer: accept}
	a := c.agent(t, p, "--allow-apply", "shop")
	blue, bank := configMap("shop", "blue"), configMap("bank", "blue")
	a.fails("apply", arguments{"trial": "", "manifest": blue}, "try the change first")
	a.fails("apply", arguments{"trial": "trial-AAAAAAAAAAAA", "manifest": blue}, "try the change first")
	if name := a.try(arguments{"manifest": bank}); name != "" {
		t.Errorf("a change in another namespace can be applied, as %s", name)
	}
	if name := a.try(arguments{"delete": []any{map[string]any{"resource": "namespaces", "name": "bank"}}}); name != "" {
		t.Errorf("the deletion of a namespace can be applied, as %s", name)
	}
	trial := a.try(arguments{"manifest": blue})
	a.fails("apply", arguments{"trial": trial, "manifest": bank}, "only what is in these namespaces: shop")
	a.fails("apply", arguments{"trial": trial, "manifest": blue + "\n---\n" + bank}, "only what is in these namespaces: shop")
	a.fails("apply", arguments{"trial": trial, "delete": []any{map[string]any{"resource": "namespaces", "name": "bank"}}}, "is in no namespace")
	a.fails("apply", arguments{"trial": trial, "manifest": `{"apiVersion": "history.sqube.io/v1alpha1", "kind": "Undo", "metadata": {"name": "x"}}`}, "can't be applied")
	a.fails("apply", arguments{"trial": trial, "manifest": configMap("shop", "green")}, "not the change that")
	a.fails("apply", arguments{"trial": trial, "manifest": blue, "force_conflicts": true}, "not the change that")
	if len(p.asked) > 0 {
		t.Errorf("a person was asked: %q", p.asked)
	}
	for _, answer := range []func() (*mcp.ElicitResult, error){
		func() (*mcp.ElicitResult, error) { return &mcp.ElicitResult{Action: "decline"}, nil },
		func() (*mcp.ElicitResult, error) { return &mcp.ElicitResult{Action: "cancel"}, nil },
		func() (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"apply": false}}, nil
		},
	} {
		p.answer = answer
		a.fails("apply", arguments{"trial": trial, "manifest": blue}, "did not confirm")
	}
	p.answer = func() (*mcp.ElicitResult, error) { return nil, errors.New("the person is away") }
	if _, err := a.CallTool(t.Context(), &mcp.CallToolParams{Name: "apply", Arguments: arguments{"trial": trial, "manifest": blue}}); err == nil {
		t.Error("a change was applied that nobody confirmed")
	}
	if color := c.color(t, "shop"); color != "" {
		t.Fatalf("what was not confirmed was written: %q", color)
	}
	mute := c.agent(t, nil, "--allow-apply", "shop")
	mute.fails("apply", arguments{"trial": mute.try(arguments{"manifest": blue}), "manifest": blue}, "can't ask a person")

	p.asked, p.answer = nil, accept
	a.shows("apply", arguments{"trial": trial, "manifest": blue}, "Applied", "sqube undo --transaction")
	if len(p.asked) != 1 || !strings.Contains(p.asked[0], "came to rest as asked") || !strings.Contains(p.asked[0], "apply ConfigMap shop/paint") || !strings.Contains(p.asked[0], "color: blue") {
		t.Errorf("the person was asked %q", p.asked)
	}
	if color := c.color(t, "shop"); color != "blue" {
		t.Errorf("the cluster has %q", color)
	}
	a.fails("apply", arguments{"trial": trial, "manifest": blue}, "no such trial")

	green := configMap("shop", "green")
	trial = a.try(arguments{"manifest": green})
	_, err := c.CoreV1().ConfigMaps("shop").Patch(t.Context(), "paint", "application/merge-patch+json", []byte(`{"data":{"other":"1"}}`), metav1.PatchOptions{})
	harness.Must(t, err)
	a.fails("apply", arguments{"trial": trial, "manifest": green}, "has changed since the trial")
	sure := c.agent(t, nil, "--allow-apply", "shop", "--no-confirmation")
	for _, change := range []arguments{{"manifest": green}, {"delete": []any{map[string]any{"resource": "configmaps", "name": "notes"}}, "namespace": "shop"}} {
		change["trial"] = sure.try(change)
		sure.shows("apply", change, "Applied")
	}
	if _, err := c.CoreV1().ConfigMaps("shop").Get(t.Context(), "notes", metav1.GetOptions{}); !apierrors.IsNotFound(err) || c.color(t, "shop") != "green" {
		t.Errorf("what was applied is not so: %v", err)
	}
}

// undoes takes back all that agents have applied: an agent with a plan, and a person with one command.
func (c *cluster) undoes(t *testing.T) {
	p := &person{answer: accept}
	a := c.agent(t, p, "--allow-apply", "shop")
	a.fails("plan_undo", arguments{"namespace": "bank", "user": "kubernetes-admin", "since": "1h"}, "only what is in these namespaces: shop")
	a.fails("undo", arguments{"plan": "trial-AAAAAAAAAAAA"}, "no such")
	blue := configMap("shop", "red")
	a.fails("undo", arguments{"plan": a.try(arguments{"manifest": blue})}, "no plan")
	_, err := c.CoreV1().ConfigMaps("shop").Patch(t.Context(), "paint", "application/merge-patch+json", []byte(`{"data":{"late":"1"}}`), metav1.PatchOptions{})
	harness.Must(t, err)
	text := a.shows("plan_undo", arguments{"namespace": "shop", "resource": "configmaps", "name": "notes"}, "create  configmaps shop/notes", "+ ConfigMap shop/notes", "At rest")
	_, rest, _ := strings.Cut(text, `plan="`)
	plan, _, _ := strings.Cut(rest, `"`)
	a.shows("undo", arguments{"plan": plan}, "Undone", "(done)")
	if len(p.asked) != 1 || !strings.Contains(p.asked[0], "came to rest as asked") || !strings.Contains(p.asked[0], "create  configmaps shop/notes") {
		t.Errorf("the person was asked %q", p.asked)
	}
	_, err = c.CoreV1().ConfigMaps("shop").Get(t.Context(), "notes", metav1.GetOptions{})
	harness.Must(t, err)
	a.fails("undo", arguments{"plan": plan}, "no such")

	stdout, stderr, code := sqube.Run(t, []string{"undo", "--manager", "sqube-mcp", "--since", "1h", "--apply", "--force", "--kubeconfig", c.Kubeconfig})
	if code != 0 {
		t.Fatalf("undoing what the agents did fails: %s%s", stdout, stderr)
	}
	if color := c.color(t, "shop"); color != "" {
		t.Errorf("after undoing what the agents did, the cluster has %q:\n%s", color, stdout)
	}
}
