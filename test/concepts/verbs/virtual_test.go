package verbs

import (
	"net/http"
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

const (
	authorizationAPI  = "/apis/authorization.k8s.io/v1/"
	authenticationAPI = "/apis/authentication.k8s.io/v1/"
)

var virtualResources = []kit.Promise{
	{Statement: "virtual resources have no name, are not stored, and can only be created", Proof: func(t *testing.T, c *kit.Cluster) {
		for path, body := range map[string]string{
			authorizationAPI + "subjectaccessreviews": `{"spec":{"user":"jane","nonResourceAttributes":{"verb":"get","path":"/"}}}`, authorizationAPI + "selfsubjectaccessreviews": `{"spec":{"nonResourceAttributes":{"verb":"get","path":"/"}}}`,
			authorizationAPI + "selfsubjectrulesreviews": `{"spec":{"namespace":"default"}}`, authenticationAPI + "selfsubjectreviews": `{}`, authenticationAPI + "tokenreviews": `{"spec":{"token":"x"}}`,
		} {
			for range 2 {
				a := c.Post(t, path, body).Created(t)
				kit.Equal(t, []string{a.Text(t, "metadata", "name"), a.Text(t, "metadata", "uid"), a.ResourceVersion(t)}, []string{"", "", ""})
			}
			for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPatch, http.MethodDelete} {
				c.Send(t, method, path, nil, nil).Want(t, http.StatusMethodNotAllowed)
				c.Send(t, method, path+"/a", nil, nil).NotFound(t, "the server could not find the requested resource")
			}
			c.Get(t, path+"?watch=true").Want(t, http.StatusMethodNotAllowed)
		}
	}},
}
