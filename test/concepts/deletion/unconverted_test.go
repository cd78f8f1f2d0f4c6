package deletion

import (
	"net/http"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
)

// unconverted deletes custom resources that their definition's webhook, which is gone, would have to convert to the storage version, and the
// namespace that they are in. kube-apiserver's namespace keeps all of them.
func unconverted(t *testing.T, c *kit.Cluster) {
	w := c.CustomResource()
	c.Post(t, kit.Definitions, w.Definition(kit.CRDVersion("v2", kit.AnySpec), kit.CRDVersion("v1", kit.AnySpec, "storage: true"))).Created(t)
	w.Established(t)
	for name, fields := range map[string]string{"a": "{}", "b": "{}", "c": "{}", "kept": "metadata: {finalizers: [example.com/keep]}"} {
		w.Create(t, name, fields).Created(t)
	}
	c.Patch(t, kit.JSONPatch, kit.Definitions+"/widgets."+w.Group, `[{"op":"replace","path":"/spec/versions/0/storage","value":true},{"op":"replace","path":"/spec/versions/1/storage","value":false},
		{"op":"replace","path":"/spec/conversion","value":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"url":"https://127.0.0.1:1/"}}}}]`).OK(t)
	failed := "conversion webhook for " + w.Group + "/v1, Kind=Widget failed"
	harness.Eventually(t, "the objects are converted by the webhook", func() bool {
		a := c.Get(t, w.At("v2", "a"))
		return a.Code == http.StatusInternalServerError && strings.Contains(a.Text(t, "message"), failed)
	})
	t.Run("an object that can't be converted is deleted in the version in which it is stored", func(t *testing.T) {
		c.Delete(t, w.At("v2", "a")).Want(t, http.StatusInternalServerError)
		c.Delete(t, w.At("v1", "a")).OK(t)
	})
	t.Run("an object that can't be converted is deleted with the option, despite its finalizers", func(t *testing.T) {
		c.Delete(t, w.At("v2", "b")+"?"+unsafe+"=true").OK(t)
	})
	t.Run("the deletion of a namespace deletes what can't be converted, and says which object with finalizers it can't change", func(t *testing.T) {
		namespace := "/api/v1/namespaces/" + c.Namespace
		c.Delete(t, namespace).OK(t)
		harness.Eventually(t, "the condition names the object", func() bool {
			conditions := c.Get(t, namespace).OK(t).FieldJSON(t, "status", "conditions")
			return strings.Contains(conditions, "kept: ") && strings.Contains(conditions, failed) && strings.Contains(conditions, `"ContentDeletionFailed"`)
		})
		kit.Equal(t, c.Get(t, w.At("v1")).OK(t).Names(t), []string{"kept"})
		c.Delete(t, w.At("v2", "kept")+"?"+unsafe+"=true").OK(t)
		c.WaitGone(t, namespace)
	})
}
