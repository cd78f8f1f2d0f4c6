package concepts

import (
	"net/http"
	"net/url"
	"slices"
	"testing"
)

// Section "Retrieving large results sets in chunks", and "Collections".
func TestLists(t *testing.T) {
	prove(t, nil,
		promise{"a continue token goes on with the snapshot that the first page began", func(t *testing.T, c *cluster) {
			for _, name := range []string{"a", "b", "c"} {
				c.post(t, c.path("v1", "configmaps"), configMap(name, nil)).want(t, http.StatusCreated)
			}
			first := c.get(t, c.path("v1", "configmaps")+"?limit=2").want(t, http.StatusOK)
			c.delete(t, c.path("v1", "configmaps", "c")).want(t, http.StatusOK)
			c.post(t, c.path("v1", "configmaps"), configMap("d", nil)).want(t, http.StatusCreated)

			token := url.QueryEscape(first.text(t, "metadata", "continue"))
			second := c.get(t, c.path("v1", "configmaps")+"?limit=2&continue="+token).want(t, http.StatusOK)
			names := append(first.names(t), second.names(t)...)
			names = slices.DeleteFunc(names, func(name string) bool { return name == "kube-root-ca.crt" })
			if !slices.Equal(names, []string{"a", "b", "c"}) {
				t.Errorf("the pages have %v", names)
			}
			if first.version(t) != second.version(t) {
				t.Errorf("the pages are of revisions %s and %s", first.version(t), second.version(t))
			}
		}},
	)
}
