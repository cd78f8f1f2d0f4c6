package mcp

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/harness"
)

// TestAgentsElsewhere has an agent apply at a server without transactions, as other servers are.
func TestAgentsElsewhere(t *testing.T) {
	t.Parallel()
	c := start(t, "--transactions=false")
	p := &person{answer: accept}
	a := c.agent(t, p, "--allow-apply", "shop")
	_, err := c.CoreV1().ConfigMaps("shop").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "paint"}, Data: map[string]string{"color": "red"}}, metav1.CreateOptions{})
	harness.Must(t, err)
	other := strings.ReplaceAll(configMap("shop", "white"), "paint", "other")
	if name := a.try(arguments{"manifest": configMap("shop", "blue")}); name != "" {
		t.Errorf("a change that is refused can be applied, as %s", name)
	}
	for _, change := range []arguments{
		{"manifest": configMap("shop", "blue") + "\n---\n" + other, "force_conflicts": true}, {"namespace": "shop", "delete": []any{map[string]any{"resource": "cm", "name": "other"}}},
	} {
		change["trial"] = a.try(change)
		a.shows("apply", change, "Applied", "object by object")
	}
	if color := c.color(t, "shop"); color != "blue" {
		t.Errorf("the cluster has %q", color)
	}
	change := arguments{"manifest": other}
	change["trial"] = a.try(change)
	_, err = c.CoreV1().ConfigMaps("shop").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{})
	harness.Must(t, err)
	a.fails("apply", change, "has changed since the trial")
}
