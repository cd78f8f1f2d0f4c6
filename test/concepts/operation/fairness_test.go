package operation

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

const (
	flowSchemas    = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"
	priorityLevels = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations"
)

// Concept "API Priority and Fairness".
func TestFairness(t *testing.T) {
	// 60 requests at once; a request may wait for a quarter of its timeout.
	kit.Prove(t, []string{"--max-requests-inflight=40", "--max-mutating-requests-inflight=20", "--request-timeout=4m"},
		kit.Promise{Statement: "a cluster has the mandatory and the suggested flow schemas and priority levels", Proof: func(t *testing.T, c *kit.Cluster) {
			for path, want := range map[string][]string{
				flowSchemas: {
					"catch-all", "exempt", "global-default", "kube-controller-manager", "kube-scheduler", "kube-system-service-accounts",
					"probes", "service-accounts", "system-leader-election", "system-node-high", "system-nodes",
				},
				priorityLevels: {"catch-all", "exempt", "global-default", "leader-election", "node-high", "system", "workload-high", "workload-low"},
			} {
				names := c.Get(t, path).OK(t).Names(t)
				names = slices.DeleteFunc(names, func(name string) bool { return strings.HasPrefix(name, "fairness") })
				if !slices.Equal(names, want) {
					t.Errorf("%s has %v instead of %v", path, names, want)
				}
			}
		}},
		kit.Promise{Statement: "a response has the flow schema and the priority level of the request", Proof: func(t *testing.T, c *kit.Cluster) {
			lease := c.Path("coordination.k8s.io/v1", "leases")
			system := "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
			for _, r := range []struct {
				client               *kit.Client
				method, path         string
				flowSchema, priority string
			}{
				{c.Client, http.MethodGet, "/version", "exempt", "exempt"},
				{c.Anonymous(t), http.MethodGet, "/readyz", "probes", "exempt"},
				{c.Anonymous(t), http.MethodGet, "/version", "global-default", "global-default"},
				{c.As(t, "jane"), http.MethodGet, "/version", "global-default", "global-default"},
				{c.As(t, "jane"), http.MethodGet, "/api/v1/pods", "global-default", "global-default"}, // although it is forbidden
				{c.As(t, "system:node:n", "system:nodes"), http.MethodGet, "/api/v1/pods", "system-nodes", "system"},
				{c.As(t, "system:node:n", "system:nodes"), http.MethodPut, "/api/v1/nodes/n/status", "system-node-high", "node-high"},
				{c.As(t, "system:node:n", "system:nodes"), http.MethodGet, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n", "system-node-high", "node-high"},
				{c.As(t, "system:kube-scheduler"), http.MethodGet, "/api/v1/pods", "kube-scheduler", "workload-high"},
				{c.As(t, "system:kube-scheduler"), http.MethodPut, system + "/kube-scheduler", "system-leader-election", "leader-election"},
				{c.As(t, "system:kube-controller-manager"), http.MethodGet, lease, "kube-controller-manager", "workload-high"},
				{c.As(t, "system:serviceaccount:kube-system:a", "system:serviceaccounts", "system:serviceaccounts:kube-system"), http.MethodGet, lease, "kube-system-service-accounts", "workload-high"},
				{c.As(t, "system:serviceaccount:default:a", "system:serviceaccounts", "system:serviceaccounts:default"), http.MethodGet, lease, "service-accounts", "workload-low"},
			} {
				schema, level := c.Get(t, flowSchemas+"/"+r.flowSchema).Text(t, "metadata", "uid"), c.Get(t, priorityLevels+"/"+r.priority).Text(t, "metadata", "uid")
				// A server that has just started needs a moment to read them.
				harness.Eventually(t, r.method+" "+r.path+" has "+r.flowSchema+" and "+r.priority, func() bool {
					a := r.client.Send(t, r.method, r.path, kit.Header{"Content-Type", "application/json"}, nil)
					return a.Header.Get("X-Kubernetes-Pf-Flowschema-Uid") == schema && a.Header.Get("X-Kubernetes-Pf-Prioritylevel-Uid") == level
				})
			}
		}},
		kit.Promise{Statement: "a flow schema whose priority level is missing reports that, and requests match the next one", Proof: func(t *testing.T, c *kit.Cluster) {
			user := c.As(t, c.Namespace)
			c.Post(t, flowSchemas, kit.Manifest(`{metadata: {name: %[1]s}, spec: {matchingPrecedence: 60, priorityLevelConfiguration: {name: %[1]s},
				rules: [{subjects: [{kind: User, user: {name: %[1]s}}], nonResourceRules: [{verbs: ["*"], nonResourceURLs: ["*"]}]}]}}`, c.Namespace)).Created(t)
			dangling := func(want string) {
				t.Helper()
				harness.Eventually(t, "Dangling is "+want, func() bool {
					conditions, _ := c.Get(t, flowSchemas+"/"+c.Namespace).Value(t, "status", "conditions").([]any)
					return slices.ContainsFunc(conditions, func(condition any) bool {
						return kit.ObjectOf(condition)["type"] == "Dangling" && kit.ObjectOf(condition)["status"] == want
					})
				})
			}
			dangling("True")
			if got, want := user.Get(t, "/version").Header.Get("X-Kubernetes-Pf-Flowschema-Uid"), c.Get(t, flowSchemas+"/global-default").Text(t, "metadata", "uid"); got != want {
				t.Errorf("the flow schema is %q instead of %q", got, want)
			}
			level := c.Post(t, priorityLevels, kit.Manifest(`{metadata: {name: %s}, spec: {type: Limited, limited: {limitResponse: {type: Reject}}}}`, c.Namespace)).Created(t)
			dangling("False")
			harness.Eventually(t, "the level is in effect", func() bool {
				return user.Get(t, "/version").Header.Get("X-Kubernetes-Pf-Prioritylevel-Uid") == level.Text(t, "metadata", "uid")
			})
		}},
		kit.Promise{Statement: "a user who floods a priority level gets 429, other users of the level are still served, and other levels are not affected", Proof: flood},
		kit.Promise{Statement: "metrics and dumps show what happened to requests", Proof: func(t *testing.T, c *kit.Cluster) {
			user, dispatched := c.As(t, "jane"), `apiserver_flowcontrol_dispatched_requests_total{flow_schema="global-default",priority_level="global-default"}`
			// A server that has just started needs a moment to read the flow schema.
			harness.Eventually(t, "a request is counted for global-default", func() bool {
				user.Get(t, "/version").OK(t)
				return strings.Contains(string(c.Get(t, "/metrics").Body), dispatched)
			})
			for dump, column := range map[string]string{
				"dump_priority_levels": "PriorityLevelName", "dump_queues": "PriorityLevelName", "dump_requests": "FlowSchemaName",
			} {
				if a := c.Get(t, "/debug/api_priority_and_fairness/"+dump).OK(t); !strings.Contains(string(a.Body), column) {
					t.Errorf("%s is\n%s", dump, a.Body)
				}
			}
		}},
	)
}

// flood uses a priority level of one seat, with a queue of six for each of two users, one of which sends far too many requests.
func flood(t *testing.T, c *kit.Cluster) {
	const requests, fit = 20, 1 + 6 // in the seat, and in the queue
	flooder, other := writer(t, c, c.Namespace+"-flooder"), writer(t, c, c.Namespace+"-other")
	level := c.Post(t, priorityLevels, kit.Manifest(`{metadata: {name: %s}, spec: {type: Limited, limited: {
		nominalConcurrencyShares: 1, lendablePercent: 0, borrowingLimitPercent: 0,
		limitResponse: {type: Queue, queuing: {queues: 512, handSize: 1, queueLengthLimit: 6}}}}}`, c.Namespace)).Created(t).Text(t, "metadata", "uid")
	c.Post(t, flowSchemas, kit.Manifest(`{metadata: {name: %[1]s}, spec: {matchingPrecedence: 50, priorityLevelConfiguration: {name: %[1]s}, distinguisherMethod: {type: ByUser},
		rules: [{subjects: [{kind: User, user: {name: %[1]s-flooder}}, {kind: User, user: {name: %[1]s-other}}],
			resourceRules: [{verbs: ["*"], apiGroups: ["*"], resources: ["*"], namespaces: ["*"]}]}]}}`, c.Namespace)).Created(t)
	maps := c.Path("v1", "configmaps")
	for _, user := range []*kit.Client{flooder, other} {
		harness.Eventually(t, "the level is in effect", func() bool { return user.Get(t, maps).Header.Get("X-Kubernetes-Pf-Prioritylevel-Uid") == level })
	}
	gate := newGate(t, c, c.Namespace+"-flooder")

	answers, others := make(chan kit.Answer, requests), make(chan kit.Answer, 1)
	for range requests {
		go func() { answers <- flooder.Post(t, maps, kit.Manifest(`{metadata: {generateName: flood-}}`)) }()
	}
	gate.arrival(t)
	for range requests - fit {
		tooMany(t, (<-answers))
	}
	c.Post(t, maps, kit.ConfigMap("by-admin", nil)).Created(t)
	c.As(t, "jane").Get(t, "/version").OK(t)
	c.Anonymous(t).Get(t, "/livez").OK(t)

	go func() { others <- other.Post(t, maps, kit.ConfigMap("by-other", nil)) }()
	harness.Eventually(t, "the other user waits, too", func() bool {
		levels := string(c.Get(t, "/debug/api_priority_and_fairness/dump_priority_levels").Body)
		for line := range strings.Lines(levels) {
			// The name, active queues, idle, quiescing, waiting.
			if columns := strings.FieldsFunc(line, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' }); len(columns) > 4 && columns[0] == c.Namespace {
				return columns[4] == "7"
			}
		}
		return false
	})
	// The other user came last, but the flooder had the seat all the time.
	served := 0
	for done := false; !done; served++ {
		gate.pass()
		select {
		case a := <-others:
			a.Created(t)
			done = true
		case <-gate.arrivals:
		case <-time.After(kit.RequestTimeout):
			t.Fatal("no request is served")
		}
	}
	if served > fit/2 {
		t.Errorf("%d requests of the flood were served before the other user's", served)
	}
	gate.open()
	for range fit {
		(<-answers).Created(t)
	}
}

// TestPlainLimits tests the limits without priority and fairness.
func TestPlainLimits(t *testing.T) {
	kit.Prove(t, []string{"--enable-priority-and-fairness=false", "--max-mutating-requests-inflight=2"},
		kit.Promise{Statement: "concurrent writes above the limit get 429, except for those of administrators; reads are not affected", Proof: func(t *testing.T, c *kit.Cluster) {
			user := writer(t, c, c.Namespace+"-user")
			gate := newGate(t, c, c.Namespace+"-user")
			maps := c.Path("v1", "configmaps")
			answers := make(chan kit.Answer, 2)
			for range cap(answers) {
				go func() {
					slow := kit.Manifest(`{metadata: {generateName: slow-}}`)
					a := user.Post(t, maps, slow)
					for a.Code == http.StatusTooManyRequests { // the server's own writes count, too
						a = user.Post(t, maps, slow)
					}
					answers <- a
				}()
				gate.arrival(t)
			}
			tooMany(t, user.Post(t, maps, kit.ConfigMap("refused", nil)))
			tooMany(t, user.Delete(t, maps+"/missing"))
			a := user.Get(t, maps).OK(t)
			kit.Equal(t, a.Header.Get("X-Kubernetes-Pf-Flowschema-Uid"), "")
			c.Post(t, maps, kit.ConfigMap("by-admin", nil)).Created(t)
			gate.open()
			for range cap(answers) {
				(<-answers).Created(t)
			}
			harness.Eventually(t, "the user may write again", func() bool {
				return user.Post(t, maps+"?dryRun=All", kit.ConfigMap("a", nil)).Code == http.StatusCreated
			})
		}},
	)
}

// tooMany fails the test unless the response is that of an overloaded server.
func tooMany(t testing.TB, a kit.Answer) {
	t.Helper()
	a.Want(t, http.StatusTooManyRequests)
	if a.Header.Get("Retry-After") == "" || string(a.Body) != "Too many requests, please try again later.\n" {
		t.Errorf("%s: the response is %q, with Retry-After %q", a.Request, a.Body, a.Header.Get("Retry-After"))
	}
}

// writer returns a client of a user with all permissions on ConfigMaps in the namespace.
func writer(t *testing.T, c *kit.Cluster, name string) *kit.Client {
	t.Helper()
	c.Grant(t, name, rbacv1.PolicyRule{Verbs: []string{"*"}, APIGroups: []string{""}, Resources: []string{"configmaps"}})
	return c.As(t, name)
}

// gate is a webhook that holds up the ConfigMaps that one user creates in the namespace.
type gate struct {
	arrivals chan struct{} // one for each request that is held up
	passes   chan struct{} // one for each that may pass
}

// newGate creates a gate, and waits until it is in effect.
func newGate(t *testing.T, c *kit.Cluster, user string) *gate {
	t.Helper()
	g := &gate{arrivals: make(chan struct{}, 100), passes: make(chan struct{})}
	var inForce atomic.Bool
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		inForce.Store(true)
		if review.Request.UserInfo.Username == user {
			g.arrivals <- struct{}{}
			select {
			case <-g.passes:
			case <-r.Context().Done():
			}
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		review.TypeMeta = metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}
		if err := json.NewEncoder(w).Encode(review); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	c.Post(t, c.ClusterPath("admissionregistration.k8s.io/v1", "validatingwebhookconfigurations"), kit.Manifest(`{metadata: {name: %[1]s}, webhooks: [{name: gate.example.com,
		sideEffects: None, admissionReviewVersions: [v1], timeoutSeconds: 30, clientConfig: {url: %[2]q, caBundle: %[3]s},
		namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}},
		rules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}]}]}`, c.Namespace, server.URL, kit.JSON(ca))).Created(t)
	harness.Eventually(t, "the webhook is in effect", func() bool {
		c.Post(t, c.Path("v1", "configmaps")+"?dryRun=All", kit.ConfigMap("probe", nil)).Created(t)
		return inForce.Load()
	})
	return g
}

// arrival waits until a request is held up.
func (g *gate) arrival(t testing.TB) {
	t.Helper()
	select {
	case <-g.arrivals:
	case <-time.After(kit.RequestTimeout):
		t.Fatal("no request reaches the webhook")
	}
}

// pass releases one request.
func (g *gate) pass() { g.passes <- struct{}{} }

// open releases all requests.
func (g *gate) open() { close(g.passes) }

// TestListCost tests the cost of listing objects that were just created.
func TestListCost(t *testing.T) {
	kit.OnSQLite(t, func(t *testing.T, engine harness.Engine) {
		server := sqube.Start(t, sqube.Options{Datastore: engine.Datastore})
		c := kit.NewClient(t, server.Config(t))
		c.Get(t, "/api/v1/configmaps").OK(t)
		big := strings.Repeat("x", 200<<10)
		for _, name := range []string{"a", "b", "c"} {
			c.Post(t, "/api/v1/namespaces/default/configmaps", kit.ConfigMap(name, map[string]string{"key": big})).Created(t)
		}
		metric := func(name string) float64 {
			var value float64
			for line := range strings.Lines(string(c.Get(t, "/metrics").Body)) {
				if rest, ok := strings.CutPrefix(line, name+" "); ok {
					kit.Must(fmt.Sscan(rest, &value))(t)
				}
			}
			return value
		}
		harness.Eventually(t, "ConfigMaps are counted", func() bool { return metric(`apiserver_resource_objects{group="",resource="configmaps"}`) >= 3 })

		// A list of that size takes several seats (of 100 kB each), a get one.
		manager := (&kit.Cluster{Config: server.Config(t)}).As(t, "system:kube-controller-manager")
		const seats = `apiserver_flowcontrol_work_estimated_seats_sum{flow_schema="kube-controller-manager",priority_level="workload-high"}`
		manager.Get(t, "/version").OK(t)
		before := metric(seats)
		manager.Get(t, "/api/v1/namespaces/default/configmaps/a")
		kit.Equal(t, metric(seats)-before, 1.0)
		before = metric(seats)
		manager.Get(t, "/api/v1/configmaps").OK(t)
		if taken := metric(seats) - before; taken < 3 {
			t.Errorf("a list takes %v seats", taken)
		}
	})
}
