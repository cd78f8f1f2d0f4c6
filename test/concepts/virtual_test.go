package concepts

import (
	"net/http"
	"testing"
)

const (
	authorizationAPI  = "/apis/authorization.k8s.io/v1/"
	authenticationAPI = "/apis/authentication.k8s.io/v1/"
)

var virtualResources = []promise{
	{"a SubjectAccessReview says whether anybody may do something", func(t *testing.T, c *cluster) {
		ask := func(spec string, args ...any) answer {
			return c.post(t, authorizationAPI+"subjectaccessreviews", map[string]any{"spec": manifest(spec, args...)}).want(t, http.StatusCreated)
		}
		admin := ask("{user: jane, groups: [system:masters], resourceAttributes: {verb: delete, resource: nodes}}")
		equal(t, []any{admin.text(t, "kind"), admin.value(t, "status", "allowed")}, []any{"SubjectAccessReview", true})
		equal(t, ask("{user: jane, resourceAttributes: {verb: get, resource: pods, namespace: %s}}", c.namespace).value(t, "status", "allowed"), any(false))
		equal(t, ask("{user: jane, groups: [system:authenticated], nonResourceAttributes: {verb: get, path: /version}}").value(t, "status", "allowed"), any(true))
		c.post(t, authorizationAPI+"subjectaccessreviews", `{"spec":{"user":"jane"}}`).refused(t, http.StatusUnprocessableEntity, "Invalid", "exactly one of nonResourceAttributes or resourceAttributes must be specified")
		c.post(t, authorizationAPI+"subjectaccessreviews", `{"spec":{"resourceAttributes":{"verb":"get"}}}`).refused(t, http.StatusUnprocessableEntity, "Invalid", "at least one of user or group must be specified")
	}},
	{"a LocalSubjectAccessReview asks about one namespace, that of its path", func(t *testing.T, c *cluster) {
		path := c.path("authorization.k8s.io/v1", "localsubjectaccessreviews")
		review := manifest("{metadata: {namespace: %[1]s}, spec: {user: jane, groups: [system:masters], resourceAttributes: {verb: get, resource: pods, namespace: %[1]s}}}", c.namespace)
		equal(t, c.post(t, path, review).want(t, http.StatusCreated).value(t, "status", "allowed"), any(true))
		c.post(t, path, with(review, "default", "spec", "resourceAttributes", "namespace")).refused(t, http.StatusUnprocessableEntity, "Invalid", "must match metadata.namespace")
		c.post(t, authorizationAPI+"localsubjectaccessreviews", review).want(t, http.StatusMethodNotAllowed, http.StatusNotFound)
	}},
	{"the reviews of oneself say what the caller may do, and who that is", func(t *testing.T, c *cluster) {
		may := c.post(t, authorizationAPI+"selfsubjectaccessreviews", `{"spec":{"resourceAttributes":{"verb":"delete","resource":"nodes"}}}`).want(t, http.StatusCreated)
		equal(t, may.value(t, "status", "allowed"), any(true))
		rules := c.post(t, authorizationAPI+"selfsubjectrulesreviews", map[string]any{"spec": map[string]any{"namespace": c.namespace}}).want(t, http.StatusCreated)
		first := rules.value(t, "status", "resourceRules").([]any)
		if len(first) == 0 || rules.value(t, "status", "nonResourceRules") == nil {
			t.Errorf("the rules are %s", rules.Body)
		}
		c.post(t, authorizationAPI+"selfsubjectrulesreviews", `{"spec":{}}`).refused(t, http.StatusBadRequest, "BadRequest", "no namespace on request")
		who := c.post(t, authenticationAPI+"selfsubjectreviews", `{}`).want(t, http.StatusCreated)
		if groups, _ := who.value(t, "status", "userInfo", "groups").([]any); who.text(t, "status", "userInfo", "username") == "" || len(groups) == 0 {
			t.Errorf("the caller is %s", who.Body)
		}
	}},
	{"a TokenReview says whose a token is", func(t *testing.T, c *cluster) {
		c.serviceAccount(t)
		token := c.post(t, c.path("v1", "serviceaccounts", "default", "token"), `{"spec":{}}`).want(t, http.StatusCreated).text(t, "status", "token")
		good := c.post(t, authenticationAPI+"tokenreviews", map[string]any{"spec": map[string]any{"token": token}}).want(t, http.StatusCreated)
		equal(t, []any{good.value(t, "status", "authenticated"), good.value(t, "status", "user", "username")}, []any{true, "system:serviceaccount:" + c.namespace + ":default"})
		bad := c.post(t, authenticationAPI+"tokenreviews", `{"spec":{"token":"nonsense"}}`).want(t, http.StatusCreated)
		equal(t, bad.value(t, "status", "authenticated"), any(nil))
		c.post(t, authenticationAPI+"tokenreviews", `{"spec":{}}`).refused(t, http.StatusBadRequest, "BadRequest", "token is required for TokenReview in authentication")
	}},
	{"what is virtual has no name, is not kept, and can only be created", func(t *testing.T, c *cluster) {
		for path, body := range map[string]string{
			authorizationAPI + "subjectaccessreviews": `{"spec":{"user":"jane","nonResourceAttributes":{"verb":"get","path":"/"}}}`, authorizationAPI + "selfsubjectaccessreviews": `{"spec":{"nonResourceAttributes":{"verb":"get","path":"/"}}}`,
			authorizationAPI + "selfsubjectrulesreviews": `{"spec":{"namespace":"default"}}`, authenticationAPI + "selfsubjectreviews": `{}`, authenticationAPI + "tokenreviews": `{"spec":{"token":"x"}}`,
		} {
			for range 2 {
				a := c.post(t, path, body).want(t, http.StatusCreated)
				equal(t, []string{a.text(t, "metadata", "name"), a.text(t, "metadata", "uid"), a.version(t)}, []string{"", "", ""})
			}
			for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPatch, http.MethodDelete} {
				c.send(t, method, path, nil, nil).want(t, http.StatusMethodNotAllowed)
				c.send(t, method, path+"/a", nil, nil).refused(t, http.StatusNotFound, "NotFound", "the server could not find the requested resource")
			}
			c.get(t, path+"?watch=true").want(t, http.StatusMethodNotAllowed)
		}
	}},
	{"a token of a service account can be created and never be read", func(t *testing.T, c *cluster) {
		c.serviceAccount(t)
		path := c.path("v1", "serviceaccounts", "default", "token")
		equal(t, c.post(t, path, `{"spec":{"expirationSeconds":600}}`).want(t, http.StatusCreated).text(t, "kind"), "TokenRequest")
		c.post(t, path, `{"spec":{"expirationSeconds":1}}`).refused(t, http.StatusUnprocessableEntity, "Invalid", "may not specify a duration less than 10 minutes")
		c.post(t, c.path("v1", "serviceaccounts", "none", "token"), `{"spec":{}}`).refused(t, http.StatusNotFound, "NotFound", `serviceaccounts "none" not found`)
		c.get(t, path).want(t, http.StatusMethodNotAllowed)
	}},
}
