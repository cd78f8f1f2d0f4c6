package concepts

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
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
)

// auditPolicy has a rule for each promise, told apart by what they request.
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

// auditEvent is an event of the log, as audit.k8s.io/v1 has it.
type auditEvent struct {
	metav1.TypeMeta
	Level, AuditID, Stage, RequestURI, Verb, UserAgent string

	User             authenticationv1.UserInfo
	ImpersonatedUser *authenticationv1.UserInfo
	SourceIPs        []string
	ObjectRef        *struct {
		Resource, Namespace, Name, UID, APIGroup, APIVersion, ResourceVersion, Subresource string
	}
	ResponseStatus                           *metav1.Status
	RequestObject                            any // a JSON patch is a list
	ResponseObject                           map[string]any
	Annotations                              map[string]string
	RequestReceivedTimestamp, StageTimestamp metav1.MicroTime
}

// auditLog is the file that servers record requests in, one event a line.
type auditLog string

// events waits until the log has the request's event of the stage, and returns all of the request until then.
func (l auditLog) events(t testing.TB, id, stage string) []auditEvent {
	t.Helper()
	for deadline := time.Now().Add(requestTimeout); ; time.Sleep(10 * time.Millisecond) { // a file says nothing when it grows
		text, err := os.ReadFile(string(l))
		if err != nil {
			t.Fatal(err)
		}
		events := auditEvents(t, text, id)
		if slices.ContainsFunc(events, func(e auditEvent) bool { return e.Stage == stage }) {
			return events
		}
		if time.Now().After(deadline) {
			t.Fatalf("the log has no %s of %s, only %v", stage, id, events)
		}
	}
}

// auditEvents finds the events of the request in a log.
func auditEvents(t testing.TB, log []byte, id string) []auditEvent {
	t.Helper()
	var events []auditEvent
	for line := range bytes.Lines(log) {
		if !bytes.Contains(line, []byte(id)) || !bytes.HasSuffix(line, []byte("\n")) {
			continue
		}
		var e auditEvent
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		events = append(events, e)
	}
	return events
}

// send sends a request and returns the answer, and the last event of what the log has of it.
func (l auditLog) send(t testing.TB, c *client, method, path string, headers header, body any) (answer, auditEvent) {
	t.Helper()
	id := string(uuid.NewUUID())
	a := c.send(t, method, path, append(header{"Audit-ID", id}, headers...), body)
	events := l.events(t, id, "ResponseComplete")
	return a, events[len(events)-1]
}

// absent fails the test if the log has anything of a request. It knows that it is not to come by a later request that is
// there.
func (l auditLog) absent(t testing.TB, c *client, id string) {
	t.Helper()
	l.send(t, c, http.MethodGet, "/version", nil, nil)
	text, err := os.ReadFile(string(l))
	if err != nil {
		t.Fatal(err)
	}
	if events := auditEvents(t, text, id); len(events) > 0 {
		t.Errorf("the log has %v", events)
	}
}

func writeFile(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Task "Auditing", which the API overview names, and https://kubernetes.io/docs/reference/labels-annotations-taints/audit-annotations.
func TestAudit(t *testing.T) {
	log := auditLog(filepath.Join(t.TempDir(), "audit.log"))
	args := []string{"--audit-policy-file", writeFile(t, "policy.yaml", auditPolicy), "--audit-log-path", string(log), "--feature-gates=CBORServingAndStorage=true"}
	prove(t, args, append(log.requests(), log.bodies()...)...)
}

// requests are the promises on what an event tells of a request.
func (log auditLog) requests() []promise {
	return []promise{
		{"an event says who did what to which object from where, when, and what came of it", func(t *testing.T, c *cluster) {
			before := metav1.NowMicro()
			path := c.path("v1", "configmaps") + "?dryRun=All"
			a, e := log.send(t, c.client, http.MethodPost, path, header{"User-Agent", "prover/1.0"}, configMap("made", nil))
			a.want(t, http.StatusCreated)
			if e.APIVersion != "audit.k8s.io/v1" || e.Kind != "Event" || e.Level != "RequestResponse" || e.Verb != "create" ||
				e.RequestURI != path || e.UserAgent != "prover/1.0" || !slices.Equal(e.SourceIPs, []string{"127.0.0.1"}) {
				t.Errorf("the event is %+v", e)
			}
			if e.User.Username != "kubernetes-admin" || !slices.Contains(e.User.Groups, "system:masters") {
				t.Errorf("the user is %v", e.User)
			}
			if o := e.ObjectRef; o == nil || o.Resource != "configmaps" || o.Namespace != c.namespace || o.Name != "made" || o.APIVersion != "v1" {
				t.Errorf("the object is %+v", e.ObjectRef)
			}
			if e.ResponseStatus == nil || e.ResponseStatus.Code != http.StatusCreated {
				t.Errorf("the response is %v", e.ResponseStatus)
			}
			if e.RequestReceivedTimestamp.Before(&before) || e.StageTimestamp.Before(&e.RequestReceivedTimestamp) {
				t.Errorf("received at %s and answered at %s", e.RequestReceivedTimestamp, e.StageTimestamp)
			}
		}},
		{"a request is recorded when it is received and when it is answered", func(t *testing.T, c *cluster) {
			id := string(uuid.NewUUID())
			c.send(t, http.MethodGet, c.path("v1", "secrets"), header{"Audit-ID", id}, nil).want(t, http.StatusOK)
			wantStages(t, log.events(t, id, "ResponseComplete"), "RequestReceived", "ResponseComplete")
		}},
		{"an answer has the Audit-ID of the request, which is made up where the client gives none", func(t *testing.T, c *cluster) {
			a, e := log.send(t, c.client, http.MethodGet, "/version", nil, nil)
			if id := a.Header.Get("Audit-ID"); id == "" || id != e.AuditID {
				t.Errorf("the answer has %q, and the event %q", id, e.AuditID)
			}
			id := c.get(t, c.path("v1", "secrets")).Header.Get("Audit-ID")
			if id == "" {
				t.Fatal("no Audit-ID was made up")
			}
			log.events(t, id, "ResponseComplete")
		}},
		{"a failure is recorded with its reason and message", func(t *testing.T, c *cluster) {
			a, e := log.send(t, c.client, http.MethodGet, c.path("v1", "secrets", "missing"), nil, nil)
			a.want(t, http.StatusNotFound)
			if s := e.ResponseStatus; s == nil || s.Code != http.StatusNotFound || s.Reason != metav1.StatusReasonNotFound || s.Message != `secrets "missing" not found` {
				t.Errorf("the response is %v", s)
			}
		}},
		{"an event says why the request was allowed or forbidden", func(t *testing.T, c *cluster) {
			_, e := log.send(t, c.client, http.MethodGet, c.path("v1", "secrets"), nil, nil)
			wantAnnotations(t, e, map[string]string{"authorization.k8s.io/decision": "allow"})
			a, e := log.send(t, c.impersonating(t, rest.ImpersonationConfig{UserName: "nobody"}), http.MethodGet, c.path("v1", "secrets"), nil, nil)
			a.want(t, http.StatusForbidden)
			wantAnnotations(t, e, map[string]string{"authorization.k8s.io/decision": "forbid"})

			c.post(t, c.path("rbac.authorization.k8s.io/v1", "roles"), map[string]any{
				"metadata": map[string]any{"name": "lister"},
				"rules":    []any{map[string]any{"apiGroups": []string{""}, "resources": []string{"secrets"}, "verbs": []string{"list"}}},
			}).want(t, http.StatusCreated)
			c.post(t, c.path("rbac.authorization.k8s.io/v1", "rolebindings"), map[string]any{
				"metadata": map[string]any{"name": "seers"},
				"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "lister"},
				"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "seer"}},
			}).want(t, http.StatusCreated)
			seer := c.impersonating(t, rest.ImpersonationConfig{UserName: "seer"})
			eventually(t, "seer may list secrets", func() bool {
				a, e = log.send(t, seer, http.MethodGet, c.path("v1", "secrets"), nil, nil)
				return a.Code == http.StatusOK
			})
			wantAnnotations(t, e, map[string]string{
				"authorization.k8s.io/decision": "allow",
				"authorization.k8s.io/reason":   `RBAC: allowed by RoleBinding "seers/` + c.namespace + `" of Role "lister" to User "seer"`,
			})
		}},
		{"an impersonated user is recorded beside the one who impersonates", func(t *testing.T, c *cluster) {
			someone := c.impersonating(t, rest.ImpersonationConfig{UserName: "someone", UID: "7", Groups: []string{"some"}, Extra: map[string][]string{"reason": {"test"}}})
			_, e := log.send(t, someone, http.MethodGet, c.path("v1", "secrets"), nil, nil)
			if e.User.Username != "kubernetes-admin" || e.ImpersonatedUser == nil {
				t.Fatalf("the users are %v and %v", e.User, e.ImpersonatedUser)
			}
			if u := e.ImpersonatedUser; u.Username != "someone" || u.UID != "7" || !slices.Contains(u.Groups, "some") || !reflect.DeepEqual(u.Extra["reason"], authenticationv1.ExtraValue{"test"}) {
				t.Errorf("the impersonated user is %v", u)
			}
		}},
		{"a request whose credentials are not valid is recorded when its answer begins", func(t *testing.T, c *cluster) {
			stranger := newClient(t, rest.AnonymousClientConfig(c.config))
			id := string(uuid.NewUUID())
			stranger.send(t, http.MethodGet, c.path("v1", "secrets"), header{"Audit-ID", id, "Authorization", "Bearer wrong"}, nil).want(t, http.StatusUnauthorized)
			events := log.events(t, id, "ResponseStarted")
			wantStages(t, events, "ResponseStarted")
			if s := events[0].ResponseStatus; s == nil || s.Code != http.StatusUnauthorized || events[0].User.Username != "" {
				t.Errorf("the response is %v", s)
			}
		}},
		{"a request that is refused before its user is known is recorded", func(t *testing.T, c *cluster) {
			id := string(uuid.NewUUID())
			c.send(t, http.MethodGet, c.path("v1", "secrets")+"?timeout=soon", header{"Audit-ID", id}, nil).want(t, http.StatusBadRequest)
			events := log.events(t, id, "ResponseStarted")
			if s := events[0].ResponseStatus; s == nil || s.Code != http.StatusBadRequest {
				t.Errorf("the response is %v", s)
			}
		}},
		{"a watch is recorded when it begins and when it ends", func(t *testing.T, c *cluster) {
			id := string(uuid.NewUUID())
			ended := make(chan answer)
			go func() {
				ended <- c.send(t, http.MethodGet, c.path("v1", "configmaps")+"?watch=true&timeoutSeconds=1", header{"Audit-ID", id}, nil)
			}()
			wantStages(t, log.events(t, id, "ResponseStarted"), "RequestReceived", "ResponseStarted")
			<-ended
			events := log.events(t, id, "ResponseComplete")
			wantStages(t, events, "RequestReceived", "ResponseStarted", "ResponseComplete")
			if e := events[2]; e.Verb != "watch" || e.ResponseStatus.Code != http.StatusOK || e.ResponseObject != nil {
				t.Errorf("the event is %+v", e)
			}
		}},
		{"a request whose answer the server breaks off is recorded as a panic", func(t *testing.T, c *cluster) {
			r := startRemote(t, c, "127.0.0.1")
			r.register(t, c)
			id := string(uuid.NewUUID())
			response := c.open(t, http.MethodGet, r.path(c, "broken"), header{"Audit-ID", id}, nil)
			defer response.Body.Close()
			if _, err := io.ReadAll(response.Body); err == nil {
				t.Error("the answer is whole")
			}
			events := log.events(t, id, "Panic")
			wantStages(t, events, "RequestReceived", "Panic")
			if s := events[1].ResponseStatus; s == nil || s.Code != http.StatusInternalServerError || s.Message != "APIServer panic'd: net/http: abort Handler" {
				t.Errorf("the response is %v", s)
			}
		}},
		{"a request that takes more than half a second is recorded with where the time went", func(t *testing.T, c *cluster) {
			user := c.writer(t, c.namespace)
			gate := c.gate(t, c.namespace)
			id, answers := string(uuid.NewUUID()), make(chan answer, 1)
			go func() {
				answers <- user.send(t, http.MethodPost, c.path("v1", "configmaps"), header{"Audit-ID", id}, configMap("slow", nil))
			}()
			gate.arrival(t)
			<-time.After(600 * time.Millisecond)
			gate.open()
			(<-answers).want(t, http.StatusCreated)
			for _, e := range log.events(t, id, "ResponseComplete")[1:] {
				for _, part := range []string{"total", "validating-webhook"} {
					if spent, err := time.ParseDuration(e.Annotations["apiserver.latency.k8s.io/"+part]); err != nil || spent < 500*time.Millisecond {
						t.Errorf("%s is %s, %v, in %v", part, spent, err, e.Annotations)
					}
				}
			}
		}},
		{"X-Forwarded-For is recorded in front of the address of the connection", func(t *testing.T, c *cluster) {
			_, e := log.send(t, c.client, http.MethodGet, "/version", header{"X-Forwarded-For", "192.0.2.1, 192.0.2.2"}, nil)
			if !slices.Equal(e.SourceIPs, []string{"192.0.2.1", "192.0.2.2", "127.0.0.1"}) {
				t.Errorf("the addresses are %v", e.SourceIPs)
			}
		}},
		{"a long user agent is recorded up to 1024 bytes", func(t *testing.T, c *cluster) {
			_, e := log.send(t, c.client, http.MethodGet, "/version", header{"User-Agent", strings.Repeat("a", 1100)}, nil)
			if e.UserAgent != strings.Repeat("a", 1024)+"...TRUNCATED" {
				t.Errorf("the user agent has %d bytes", len(e.UserAgent))
			}
		}},
		{"a request without an object is recorded by its path", func(t *testing.T, c *cluster) {
			_, e := log.send(t, c.client, http.MethodGet, "/readyz?verbose", nil, nil)
			if e.Verb != "get" || e.RequestURI != "/readyz?verbose" || e.ObjectRef != nil {
				t.Errorf("the event is %+v", e)
			}
		}},
		{"of the rules the first that fits decides: by resource, name, subresource, verb, namespace, user, group and path", func(t *testing.T, c *cluster) {
			c.post(t, c.path("v1", "configmaps"), configMap("private", nil)).want(t, http.StatusCreated)
			c.post(t, c.path("v1", "secrets"), map[string]any{"metadata": map[string]any{"name": "s"}}).want(t, http.StatusCreated)
			for _, r := range []struct{ method, path, level string }{
				{http.MethodGet, c.path("v1", "configmaps"), "RequestResponse"},
				{http.MethodGet, c.path("v1", "configmaps", "private"), "Metadata"},
				{http.MethodGet, c.path("v1", "pods", "missing"), "RequestResponse"},
				{http.MethodGet, c.path("v1", "pods", "missing", "status"), "Metadata"},
				{http.MethodGet, c.path("v1", "secrets", "s"), "Metadata"},
				{http.MethodPut, c.path("v1", "secrets", "s"), "Request"},
				{http.MethodGet, "/api/v1/namespaces/kube-public/services", "Metadata"},
				{http.MethodGet, c.path("v1", "services"), "Request"},
				{http.MethodGet, "/version", "Metadata"},
			} {
				if _, e := log.send(t, c.client, r.method, r.path, header{"Content-Type", "application/json"}, map[string]any{"metadata": map[string]any{"name": "s"}}); e.Level != r.level {
					t.Errorf("%s %s is recorded at level %s instead of %s", r.method, r.path, e.Level, r.level)
				}
			}
		}},
		{"nothing is recorded at level None", func(t *testing.T, c *cluster) {
			anyone := newClient(t, rest.AnonymousClientConfig(c.config))
			for path, client := range map[string]*client{c.path("v1", "limitranges"): c.client, "/livez": c.client, "/healthz/ping": c.client, "/version": anyone} {
				id := string(uuid.NewUUID())
				client.send(t, http.MethodGet, path, header{"Audit-ID", id}, nil).want(t, http.StatusOK)
				log.absent(t, c.client, id)
			}
		}},
		{"stages that a rule leaves out are not recorded", func(t *testing.T, c *cluster) {
			id := string(uuid.NewUUID())
			c.send(t, http.MethodGet, c.path("v1", "replicationcontrollers"), header{"Audit-ID", id}, nil).want(t, http.StatusOK)
			wantStages(t, log.events(t, id, "ResponseComplete"), "ResponseComplete")
		}},
	}
}

// impersonating returns a client that says it is somebody else, in every way there is.
func (c *cluster) impersonating(t testing.TB, who rest.ImpersonationConfig) *client {
	t.Helper()
	config := rest.CopyConfig(c.config)
	config.Impersonate = who
	return newClient(t, config)
}

func wantStages(t testing.TB, events []auditEvent, stages ...string) {
	t.Helper()
	var got []string
	for _, e := range events {
		got = append(got, e.Stage)
	}
	if !slices.Equal(got, stages) {
		t.Errorf("the stages are %v instead of %v", got, stages)
	}
}

// wantAnnotations fails the test unless the event has these, and maybe others.
func wantAnnotations(t testing.TB, e auditEvent, want map[string]string) {
	t.Helper()
	got := maps.Clone(e.Annotations)
	maps.DeleteFunc(got, func(key, _ string) bool { _, asked := want[key]; return !asked })
	if !maps.Equal(got, want) {
		t.Errorf("the annotations are %v instead of %v", e.Annotations, want)
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
