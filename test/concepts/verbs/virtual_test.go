package verbs

import (
	"net/http"
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
)

const (
	authorizationAPI  = "/apis/authorization.k8s.io/v1/"
	authenticationAPI = "/apis/authentication.k8s.io/v1/"
)

var virtualResources = []kit.Promise{
	{Statement: "a SubjectAccessReview returns whether a user may do something", Proof: func(t *testing.T, c *kit.Cluster) {
		ask := func(spec string, args ...any) kit.Answer {
			return c.Post(t, authorizationAPI+"subjectaccessreviews", map[string]any{"spec": kit.Manifest(spec, args...)}).Want(t, http.StatusCreated)
		}
		admin := ask("{user: jane, groups: [system:masters], resourceAttributes: {verb: delete, resource: nodes}}")
		kit.Equal(t, []any{admin.Text(t, "kind"), admin.Value(t, "status", "allowed")}, []any{"SubjectAccessReview", true})
		kit.Equal(t, ask("{user: jane, resourceAttributes: {verb: get, resource: pods, namespace: %s}}", c.Namespace).Value(t, "status", "allowed"), any(false))
		harness.Eventually(t, "the authorizer has heard of the default roles", func() bool {
			return ask("{user: jane, groups: [system:authenticated], nonResourceAttributes: {verb: get, path: /version}}").Value(t, "status", "allowed") == true
		})
		c.Post(t, authorizationAPI+"subjectaccessreviews", `{"spec":{"user":"jane"}}`).Refused(t, http.StatusUnprocessableEntity, "Invalid", "exactly one of nonResourceAttributes or resourceAttributes must be specified")
		c.Post(t, authorizationAPI+"subjectaccessreviews", `{"spec":{"resourceAttributes":{"verb":"get"}}}`).Refused(t, http.StatusUnprocessableEntity, "Invalid", "at least one of user or group must be specified")
	}},
	{Statement: "a LocalSubjectAccessReview is for the namespace of its path", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("authorization.k8s.io/v1", "localsubjectaccessreviews")
		review := kit.Manifest("{metadata: {namespace: %[1]s}, spec: {user: jane, groups: [system:masters], resourceAttributes: {verb: get, resource: pods, namespace: %[1]s}}}", c.Namespace)
		kit.Equal(t, c.Post(t, path, review).Want(t, http.StatusCreated).Value(t, "status", "allowed"), any(true))
		c.Post(t, path, kit.With(review, "default", "spec", "resourceAttributes", "namespace")).Refused(t, http.StatusUnprocessableEntity, "Invalid", "must match metadata.namespace")
		c.Post(t, authorizationAPI+"localsubjectaccessreviews", review).Want(t, http.StatusMethodNotAllowed, http.StatusNotFound)
	}},
	{Statement: "self reviews return what the caller may do, and the caller's identity", Proof: func(t *testing.T, c *kit.Cluster) {
		may := c.Post(t, authorizationAPI+"selfsubjectaccessreviews", `{"spec":{"resourceAttributes":{"verb":"delete","resource":"nodes"}}}`).Want(t, http.StatusCreated)
		kit.Equal(t, may.Value(t, "status", "allowed"), any(true))
		rules := c.Post(t, authorizationAPI+"selfsubjectrulesreviews", map[string]any{"spec": map[string]any{"namespace": c.Namespace}}).Want(t, http.StatusCreated)
		first := rules.Value(t, "status", "resourceRules").([]any)
		if len(first) == 0 || rules.Value(t, "status", "nonResourceRules") == nil {
			t.Errorf("the rules are %s", rules.Body)
		}
		c.Post(t, authorizationAPI+"selfsubjectrulesreviews", `{"spec":{}}`).Refused(t, http.StatusBadRequest, "BadRequest", "no namespace on request")
		who := c.Post(t, authenticationAPI+"selfsubjectreviews", `{}`).Want(t, http.StatusCreated)
		if groups, _ := who.Value(t, "status", "userInfo", "groups").([]any); who.Text(t, "status", "userInfo", "username") == "" || len(groups) == 0 {
			t.Errorf("the caller is %s", who.Body)
		}
	}},
	{Statement: "a TokenReview returns the user of a token", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeDefaultServiceAccount(t)
		token := c.Post(t, c.Path("v1", "serviceaccounts", "default", "token"), `{"spec":{}}`).Want(t, http.StatusCreated).Text(t, "status", "token")
		good := c.Post(t, authenticationAPI+"tokenreviews", map[string]any{"spec": map[string]any{"token": token}}).Want(t, http.StatusCreated)
		kit.Equal(t, []any{good.Value(t, "status", "authenticated"), good.Value(t, "status", "user", "username")}, []any{true, "system:serviceaccount:" + c.Namespace + ":default"})
		bad := c.Post(t, authenticationAPI+"tokenreviews", `{"spec":{"token":"nonsense"}}`).Want(t, http.StatusCreated)
		kit.Equal(t, bad.Value(t, "status", "authenticated"), any(nil))
		c.Post(t, authenticationAPI+"tokenreviews", `{"spec":{}}`).Refused(t, http.StatusBadRequest, "BadRequest", "token is required for TokenReview in authentication")
	}},
	{Statement: "virtual resources have no name, are not stored, and can only be created", Proof: func(t *testing.T, c *kit.Cluster) {
		for path, body := range map[string]string{
			authorizationAPI + "subjectaccessreviews": `{"spec":{"user":"jane","nonResourceAttributes":{"verb":"get","path":"/"}}}`, authorizationAPI + "selfsubjectaccessreviews": `{"spec":{"nonResourceAttributes":{"verb":"get","path":"/"}}}`,
			authorizationAPI + "selfsubjectrulesreviews": `{"spec":{"namespace":"default"}}`, authenticationAPI + "selfsubjectreviews": `{}`, authenticationAPI + "tokenreviews": `{"spec":{"token":"x"}}`,
		} {
			for range 2 {
				a := c.Post(t, path, body).Want(t, http.StatusCreated)
				kit.Equal(t, []string{a.Text(t, "metadata", "name"), a.Text(t, "metadata", "uid"), a.ResourceVersion(t)}, []string{"", "", ""})
			}
			for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPatch, http.MethodDelete} {
				c.Send(t, method, path, nil, nil).Want(t, http.StatusMethodNotAllowed)
				c.Send(t, method, path+"/a", nil, nil).Refused(t, http.StatusNotFound, "NotFound", "the server could not find the requested resource")
			}
			c.Get(t, path+"?watch=true").Want(t, http.StatusMethodNotAllowed)
		}
	}},
	{Statement: "a token of a service account can be created, but never read", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeDefaultServiceAccount(t)
		path := c.Path("v1", "serviceaccounts", "default", "token")
		kit.Equal(t, c.Post(t, path, `{"spec":{"expirationSeconds":600}}`).Want(t, http.StatusCreated).Text(t, "kind"), "TokenRequest")
		c.Post(t, path, `{"spec":{"expirationSeconds":1}}`).Refused(t, http.StatusUnprocessableEntity, "Invalid", "may not specify a duration less than 10 minutes")
		c.Post(t, c.Path("v1", "serviceaccounts", "none", "token"), `{"spec":{}}`).Refused(t, http.StatusNotFound, "NotFound", `serviceaccounts "none" not found`)
		c.Get(t, path).Want(t, http.StatusMethodNotAllowed)
	}},
}
