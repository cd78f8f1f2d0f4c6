package operation

import (
	"io"
	"net/http"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
)

// auditPolicy has a rule for each promise, selected by its requests.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitManagedFields: true
rules:
- {level: None, users: ["system:apiserver"]}
- {level: None, resources: [{group: "", resources: [limitranges]}]}
- {level: None, nonResourceURLs: ["/healthz*", "/livez"]}
- {level: None, userGroups: ["system:unauthenticated"], nonResourceURLs: ["/version"]}
- {level: Request, verbs: [update], resources: [{group: "", resources: [secrets]}]}
- {level: Metadata, resources: [{group: "", resources: [secrets, pods/status]}]}
- {level: Metadata, resources: [{group: "", resources: [configmaps], resourceNames: [private]}]}
- {level: Metadata, namespaces: [kube-public]}
- {level: Request, resources: [{group: "", resources: [services]}]}
- {level: RequestResponse, resources: [{group: "", resources: [podtemplates]}], omitManagedFields: false}
- {level: RequestResponse, resources: [{group: "", resources: [replicationcontrollers]}], omitStages: [RequestReceived]}
- {level: RequestResponse, resources: [{group: "", resources: [configmaps, pods]}, {group: apiextensions.k8s.io}, {group: audit.example.com}]}
- {level: Metadata}
`

// Task "Auditing", linked from the API overview, and
// https://kubernetes.io/docs/reference/labels-annotations-taints/audit-annotations.
func TestAudit(t *testing.T) {
	log := kit.AuditLog(filepath.Join(t.TempDir(), "audit.log"))
	args := []string{"--audit-policy-file", kit.WriteFile(t, "policy.yaml", auditPolicy), "--audit-log-path", string(log), "--feature-gates=CBORServingAndStorage=true"}
	kit.Prove(t, args, append(requests(log), bodies(log)...)...)
}

// requests are the promises about what an event has about a request.
func requests(log kit.AuditLog) []kit.Promise {
	return []kit.Promise{
		{Statement: "an event has the user, verb, object, source, time and result of a request", Proof: func(t *testing.T, c *kit.Cluster) {
			before := metav1.NowMicro()
			path := c.Path("v1", "configmaps") + "?dryRun=All"
			a, e := log.Send(t, c.Client, http.MethodPost, path, kit.Header{"User-Agent", "prover/1.0"}, kit.ConfigMap("made", nil))
			a.Created(t)
			if e.APIVersion != "audit.k8s.io/v1" || e.Kind != "Event" || e.Level != "RequestResponse" || e.Verb != "create" ||
				e.RequestURI != path || e.UserAgent != "prover/1.0" || !slices.Equal(e.SourceIPs, []string{"127.0.0.1"}) {
				t.Errorf("the event is %+v", e)
			}
			if e.User.Username != "kubernetes-admin" || !slices.Contains(e.User.Groups, "system:masters") {
				t.Errorf("the user is %v", e.User)
			}
			if o := e.ObjectRef; o == nil || o.Resource != "configmaps" || o.Namespace != c.Namespace || o.Name != "made" || o.APIVersion != "v1" {
				t.Errorf("the object is %+v", e.ObjectRef)
			}
			if e.ResponseStatus == nil || e.ResponseStatus.Code != http.StatusCreated {
				t.Errorf("the response is %v", e.ResponseStatus)
			}
			if e.RequestReceivedTimestamp.Before(&before) || e.StageTimestamp.Before(&e.RequestReceivedTimestamp) {
				t.Errorf("received at %s and completed at %s", e.RequestReceivedTimestamp, e.StageTimestamp)
			}
		}},
		{Statement: "a request is recorded when it is received and when it is completed", Proof: func(t *testing.T, c *kit.Cluster) {
			id := string(uuid.NewUUID())
			c.Send(t, http.MethodGet, c.Path("v1", "secrets"), kit.Header{"Audit-ID", id}, nil).OK(t)
			wantStages(t, log.Events(t, id, "ResponseComplete"), "RequestReceived", "ResponseComplete")
		}},
		{Statement: "a response has the Audit-ID of the request, which is generated if the client sends none", Proof: func(t *testing.T, c *kit.Cluster) {
			a, e := log.Send(t, c.Client, http.MethodGet, "/version", nil, nil)
			if id := a.Header.Get("Audit-ID"); id == "" || id != e.AuditID {
				t.Errorf("the response has %q, and the event %q", id, e.AuditID)
			}
			id := c.Get(t, c.Path("v1", "secrets")).Header.Get("Audit-ID")
			if id == "" {
				t.Fatal("no Audit-ID was generated")
			}
			log.Events(t, id, "ResponseComplete")
		}},
		{Statement: "a failure is recorded with its reason and message", Proof: func(t *testing.T, c *kit.Cluster) {
			a, e := log.Send(t, c.Client, http.MethodGet, c.Path("v1", "secrets", "missing"), nil, nil)
			a.Want(t, http.StatusNotFound)
			if s := e.ResponseStatus; s == nil || s.Code != http.StatusNotFound || s.Reason != metav1.StatusReasonNotFound || s.Message != `secrets "missing" not found` {
				t.Errorf("the response is %v", s)
			}
		}},
		{Statement: "an event has the reason why the request was allowed or forbidden", Proof: func(t *testing.T, c *kit.Cluster) {
			_, e := log.Send(t, c.Client, http.MethodGet, c.Path("v1", "secrets"), nil, nil)
			kit.WantAnnotations(t, e, map[string]string{"authorization.k8s.io/decision": "allow"})
			a, e := log.Send(t, c.Impersonating(t, rest.ImpersonationConfig{UserName: "nobody"}), http.MethodGet, c.Path("v1", "secrets"), nil, nil)
			a.Want(t, http.StatusForbidden)
			kit.WantAnnotations(t, e, map[string]string{"authorization.k8s.io/decision": "forbid"})

			c.Post(t, c.Path("rbac.authorization.k8s.io/v1", "roles"), map[string]any{
				"metadata": map[string]any{"name": "lister"},
				"rules":    []any{map[string]any{"apiGroups": []string{""}, "resources": []string{"secrets"}, "verbs": []string{"list"}}},
			}).Created(t)
			c.Post(t, c.Path("rbac.authorization.k8s.io/v1", "rolebindings"), map[string]any{
				"metadata": map[string]any{"name": "seers"},
				"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "lister"},
				"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "seer"}},
			}).Created(t)
			seer := c.Impersonating(t, rest.ImpersonationConfig{UserName: "seer"})
			harness.Eventually(t, "seer may list secrets", func() bool {
				a, e = log.Send(t, seer, http.MethodGet, c.Path("v1", "secrets"), nil, nil)
				return a.Code == http.StatusOK
			})
			kit.WantAnnotations(t, e, map[string]string{
				"authorization.k8s.io/decision": "allow",
				"authorization.k8s.io/reason":   `RBAC: allowed by RoleBinding "seers/` + c.Namespace + `" of Role "lister" to User "seer"`,
			})
		}},
		{Statement: "an impersonated user is recorded in addition to the user who impersonates", Proof: func(t *testing.T, c *kit.Cluster) {
			someone := c.Impersonating(t, rest.ImpersonationConfig{UserName: "someone", UID: "7", Groups: []string{"some"}, Extra: map[string][]string{"reason": {"test"}}})
			_, e := log.Send(t, someone, http.MethodGet, c.Path("v1", "secrets"), nil, nil)
			if e.User.Username != "kubernetes-admin" || e.ImpersonatedUser == nil {
				t.Fatalf("the users are %v and %v", e.User, e.ImpersonatedUser)
			}
			if u := e.ImpersonatedUser; u.Username != "someone" || u.UID != "7" || !slices.Contains(u.Groups, "some") || !reflect.DeepEqual(u.Extra["reason"], authenticationv1.ExtraValue{"test"}) {
				t.Errorf("the impersonated user is %v", u)
			}
		}},
		{Statement: "a request with invalid credentials is recorded when its response begins", Proof: func(t *testing.T, c *kit.Cluster) {
			stranger := kit.NewClient(t, rest.AnonymousClientConfig(c.Config))
			id := string(uuid.NewUUID())
			stranger.Send(t, http.MethodGet, c.Path("v1", "secrets"), kit.Header{"Audit-ID", id, "Authorization", "Bearer wrong"}, nil).Want(t, http.StatusUnauthorized)
			events := log.Events(t, id, "ResponseStarted")
			wantStages(t, events, "ResponseStarted")
			if s := events[0].ResponseStatus; s == nil || s.Code != http.StatusUnauthorized || events[0].User.Username != "" {
				t.Errorf("the response is %v", s)
			}
		}},
		{Statement: "a request that is rejected before authentication is recorded", Proof: func(t *testing.T, c *kit.Cluster) {
			id := string(uuid.NewUUID())
			c.Send(t, http.MethodGet, c.Path("v1", "secrets")+"?timeout=soon", kit.Header{"Audit-ID", id}, nil).Want(t, http.StatusBadRequest)
			events := log.Events(t, id, "ResponseStarted")
			if s := events[0].ResponseStatus; s == nil || s.Code != http.StatusBadRequest {
				t.Errorf("the response is %v", s)
			}
		}},
		{Statement: "a watch is recorded when it begins and when it ends", Proof: func(t *testing.T, c *kit.Cluster) {
			id := string(uuid.NewUUID())
			ended := make(chan kit.Answer)
			go func() {
				ended <- c.Send(t, http.MethodGet, c.Path("v1", "configmaps")+"?watch=true&timeoutSeconds=1", kit.Header{"Audit-ID", id}, nil)
			}()
			wantStages(t, log.Events(t, id, "ResponseStarted"), "RequestReceived", "ResponseStarted")
			<-ended
			events := log.Events(t, id, "ResponseComplete")
			wantStages(t, events, "RequestReceived", "ResponseStarted", "ResponseComplete")
			if e := events[2]; e.Verb != "watch" || e.ResponseStatus.Code != http.StatusOK || e.ResponseObject != nil {
				t.Errorf("the event is %+v", e)
			}
		}},
		{Statement: "a request whose response the server aborts is recorded as a panic", Proof: func(t *testing.T, c *kit.Cluster) {
			r := kit.StartAggregatedServer(t, c, "127.0.0.1")
			r.Register(t, c)
			id := string(uuid.NewUUID())
			response := c.Open(t, http.MethodGet, r.Path(c, "broken"), kit.Header{"Audit-ID", id}, nil)
			defer response.Body.Close()
			if _, err := io.ReadAll(response.Body); err == nil {
				t.Error("the response is complete")
			}
			events := log.Events(t, id, "Panic")
			wantStages(t, events, "RequestReceived", "Panic")
			if s := events[1].ResponseStatus; s == nil || s.Code != http.StatusInternalServerError || s.Message != "APIServer panic'd: net/http: abort Handler" {
				t.Errorf("the response is %v", s)
			}
		}},
		{Statement: "a request that takes more than half a second is recorded with a breakdown of its latency", Proof: func(t *testing.T, c *kit.Cluster) {
			user := writer(t, c, c.Namespace)
			gate := newGate(t, c, c.Namespace)
			id, answers := string(uuid.NewUUID()), make(chan kit.Answer, 1)
			go func() {
				answers <- user.Send(t, http.MethodPost, c.Path("v1", "configmaps"), kit.Header{"Audit-ID", id}, kit.ConfigMap("slow", nil))
			}()
			gate.arrival(t)
			<-time.After(600 * time.Millisecond)
			gate.open()
			(<-answers).Created(t)
			for _, e := range log.Events(t, id, "ResponseComplete")[1:] {
				for _, part := range []string{"total", "validating-webhook"} {
					if spent, err := time.ParseDuration(e.Annotations["apiserver.latency.k8s.io/"+part]); err != nil || spent < 500*time.Millisecond {
						t.Errorf("%s is %s, %v, in %v", part, spent, err, e.Annotations)
					}
				}
			}
		}},
		{Statement: "X-Forwarded-For is recorded before the address of the connection", Proof: func(t *testing.T, c *kit.Cluster) {
			_, e := log.Send(t, c.Client, http.MethodGet, "/version", kit.Header{"X-Forwarded-For", "192.0.2.1, 192.0.2.2"}, nil)
			if !slices.Equal(e.SourceIPs, []string{"192.0.2.1", "192.0.2.2", "127.0.0.1"}) {
				t.Errorf("the addresses are %v", e.SourceIPs)
			}
		}},
		{Statement: "a long user agent is recorded up to 1024 bytes", Proof: func(t *testing.T, c *kit.Cluster) {
			_, e := log.Send(t, c.Client, http.MethodGet, "/version", kit.Header{"User-Agent", strings.Repeat("a", 1100)}, nil)
			if e.UserAgent != strings.Repeat("a", 1024)+"...TRUNCATED" {
				t.Errorf("the user agent has %d bytes", len(e.UserAgent))
			}
		}},
		{Statement: "a request without an object is recorded by its path", Proof: func(t *testing.T, c *kit.Cluster) {
			_, e := log.Send(t, c.Client, http.MethodGet, "/readyz?verbose", nil, nil)
			if e.Verb != "get" || e.RequestURI != "/readyz?verbose" || e.ObjectRef != nil {
				t.Errorf("the event is %+v", e)
			}
		}},
		{Statement: "the first matching rule decides: by resource, name, subresource, verb, namespace, user, group and path", Proof: func(t *testing.T, c *kit.Cluster) {
			c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("private", nil)).Created(t)
			c.Post(t, c.Path("v1", "secrets"), map[string]any{"metadata": map[string]any{"name": "s"}}).Created(t)
			for _, r := range []struct{ method, path, level string }{
				{http.MethodGet, c.Path("v1", "configmaps"), "RequestResponse"},
				{http.MethodGet, c.Path("v1", "configmaps", "private"), "Metadata"},
				{http.MethodGet, c.Path("v1", "pods", "missing"), "RequestResponse"},
				{http.MethodGet, c.Path("v1", "pods", "missing", "status"), "Metadata"},
				{http.MethodGet, c.Path("v1", "secrets", "s"), "Metadata"},
				{http.MethodPut, c.Path("v1", "secrets", "s"), "Request"},
				{http.MethodGet, "/api/v1/namespaces/kube-public/services", "Metadata"},
				{http.MethodGet, c.Path("v1", "services"), "Request"},
				{http.MethodGet, "/version", "Metadata"},
			} {
				if _, e := log.Send(t, c.Client, r.method, r.path, kit.Header{"Content-Type", "application/json"}, map[string]any{"metadata": map[string]any{"name": "s"}}); e.Level != r.level {
					t.Errorf("%s %s is recorded at level %s instead of %s", r.method, r.path, e.Level, r.level)
				}
			}
		}},
		{Statement: "nothing is recorded at level None", Proof: func(t *testing.T, c *kit.Cluster) {
			anyone := kit.NewClient(t, rest.AnonymousClientConfig(c.Config))
			for path, client := range map[string]*kit.Client{c.Path("v1", "limitranges"): c.Client, "/livez": c.Client, "/healthz/ping": c.Client, "/version": anyone} {
				id := string(uuid.NewUUID())
				client.Send(t, http.MethodGet, path, kit.Header{"Audit-ID", id}, nil).OK(t)
				log.Lacks(t, c.Client, id)
			}
		}},
		{Statement: "stages omitted by a rule are not recorded", Proof: func(t *testing.T, c *kit.Cluster) {
			id := string(uuid.NewUUID())
			c.Send(t, http.MethodGet, c.Path("v1", "replicationcontrollers"), kit.Header{"Audit-ID", id}, nil).OK(t)
			wantStages(t, log.Events(t, id, "ResponseComplete"), "ResponseComplete")
		}},
	}
}

func wantStages(t testing.TB, events []kit.AuditEvent, stages ...string) {
	t.Helper()
	var got []string
	for _, e := range events {
		got = append(got, e.Stage)
	}
	if !slices.Equal(got, stages) {
		t.Errorf("the stages are %v instead of %v", got, stages)
	}
}

// withoutManagedFields removes the managed fields of an object, or of a list's items.
func withoutManagedFields(object map[string]any) map[string]any {
	unstructured.RemoveNestedField(object, "metadata", "managedFields")
	items, _ := object["items"].([]any)
	for _, item := range items {
		withoutManagedFields(item.(map[string]any))
	}
	return object
}
