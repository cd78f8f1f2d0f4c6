// Package aggregation tests sqube against the documentation of aggregated APIs, discovery and OpenAPI.
package aggregation

import (
	"encoding/base64"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
)

func TestMain(m *testing.M) { kit.Main(m) }

// Section "Kubernetes API Aggregation Layer".
func TestAggregation(t *testing.T) {
	kit.Prove(t, nil, slices.Concat(aggregation, aggregatedDocuments, secondServers)...)
}

// Requests for an APIService's group version go to the Service that it names.
var aggregation = []kit.Promise{
	{Statement: "requests for a group version are proxied to the Service of its APIService", Proof: func(t *testing.T, c *kit.Cluster) {
		r := kit.StartAggregatedServer(t, c, "127.0.0.1")
		r.Register(t, c)
		object := kit.Widget(r.Group+"/v1", "a")
		kit.Equal(t, c.Post(t, r.Path(c), object).Created(t).Text(t, "metadata", "uid"), r.Group+"-made")
		kit.Equal(t, c.Get(t, r.Path(c)+"?labelSelector=a%3Db").OK(t).Text(t, "kind"), "WidgetList")
		kit.Equal(t, r.LastRequest(t, r.Path(c)).URL.RawQuery, "labelSelector=a%3Db")
		c.Get(t, r.Path(c, "a")).NotFound(t, "the widget server has no a")
		if resources, _ := c.Get(t, "/apis/"+r.Group+"/v1").OK(t).Value(t, "resources").([]any); len(resources) != 1 {
			t.Errorf("the version's document has the resources %v", resources)
		}
	}},
	{Statement: "the server of an aggregated API receives the user, and only from the front proxy", Proof: func(t *testing.T, c *kit.Cluster) {
		r := kit.StartAggregatedServer(t, c, "127.0.0.1")
		r.Register(t, c)
		who := c.Impersonating(t, rest.ImpersonationConfig{UserName: "jane", UID: "42", Groups: []string{"system:masters", "a/b"}, Extra: map[string][]string{"example.com/scopes": {"x", "y"}}})
		who.Send(t, http.MethodGet, r.Path(c), kit.Header{"X-Remote-User", "eve", "X-Remote-Group", "evil", "X-Remote-Extra-Role", "king"}, nil).OK(t)
		got := r.LastRequest(t, r.Path(c))
		for name, want := range map[string][]string{
			"X-Remote-User":                       {"jane"},
			"X-Remote-Uid":                        {"42"},
			"X-Remote-Group":                      {"system:masters", "a/b", "system:authenticated"},
			"X-Remote-Extra-Example.com%2fscopes": {"x", "y"},
			"X-Remote-Extra-Role":                 nil, "Impersonate-User": nil, "Authorization": nil,
		} {
			if !slices.Equal(got.Header[name], want) {
				t.Errorf("%s is %q instead of %q", name, got.Header[name], want)
			}
		}
		if name, allowed := got.TLS.PeerCertificates[0].Subject.CommonName, kit.FrontProxyAuthentication(t, c).Text(t, "data", "requestheader-allowed-names"); !strings.Contains(allowed, `"`+name+`"`) {
			t.Errorf("the front proxy's name is %q, allowed are %s", name, allowed)
		}
	}},
	{Statement: "an unauthorized user is denied before the request reaches the aggregated API", Proof: func(t *testing.T, c *kit.Cluster) {
		r := kit.StartAggregatedServer(t, c, "127.0.0.1")
		r.Register(t, c)
		jane := c.As(t, "jane")
		jane.Get(t, r.Path(c, "secret")).Forbidden(t, `User "jane" cannot get resource "widgets" in API group "`+r.Group+`"`)
		for _, request := range r.Requests() {
			if strings.HasSuffix(request, "/secret") {
				t.Errorf("it received %s", request)
			}
		}
		c.Post(t, c.Path("rbac.authorization.k8s.io/v1", "roles"), kit.Manifest("{metadata: {name: r}, rules: [{apiGroups: [%s], resources: [widgets], verbs: [list]}]}", r.Group)).Created(t)
		c.Post(t, c.Path("rbac.authorization.k8s.io/v1", "rolebindings"), kit.Manifest("{metadata: {name: r}, subjects: [{kind: User, name: jane}], "+
			"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: r}}")).Created(t)
		harness.Eventually(t, "jane may list", func() bool { return jane.Get(t, r.Path(c)).Code == http.StatusOK })
	}},
	{Statement: "connections to an aggregated API can be upgraded, as needed for exec and port forwarding", Proof: func(t *testing.T, c *kit.Cluster) {
		r := kit.StartAggregatedServer(t, c, "127.0.0.1")
		r.Register(t, c)
		connection, reader, response := kit.DialUpgrade(t, c, r.Path(c, "a", "echo"))
		if response.StatusCode != http.StatusSwitchingProtocols || response.Header.Get("Upgrade") != "echo" {
			t.Fatalf("the response is %s, %v", response.Status, response.Header)
		}
		for _, line := range []string{"to and fro\n", "and again\n"} {
			kit.Must(connection.Write([]byte(line)))(t)
			if got, err := reader.ReadString('\n'); err != nil || got != line {
				t.Fatalf("sent %q, got %q, %v", line, got, err)
			}
		}
		if user := r.LastRequest(t, r.Path(c, "a", "echo")).Header.Get("X-Remote-User"); user == "" {
			t.Error("the server did not receive the user")
		}
	}},
	{Statement: "a redirect from an aggregated API is not passed on", Proof: func(t *testing.T, c *kit.Cluster) {
		r := kit.StartAggregatedServer(t, c, "127.0.0.1")
		r.Register(t, c)
		c.HTTP.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		answer := c.Get(t, r.Path(c, "a", "redirect")).Want(t, http.StatusBadGateway)
		if answer.Header.Get("Location") != "" || !strings.Contains(string(answer.Body), "redirect") {
			t.Errorf("the response is %v, %s", answer.Header, answer.Body)
		}
	}},
	{Statement: "insecureSkipTLSVerify accepts any certificate, and excludes a caBundle", Proof: func(t *testing.T, c *kit.Cluster) {
		r := kit.StartAggregatedServer(t, c, "127.0.0.1")
		kit.MakeServiceTo(t, c)
		insecure := kit.With(kit.NewAPIService(c, r.Group, r.Port, r.CA), true, "spec", "insecureSkipTLSVerify")
		c.Post(t, kit.APIServices, insecure).Invalid(t, "may not be true if caBundle is present")
		kit.RegisterAPIService(t, c, kit.With(insecure, nil, "spec", "caBundle"))
		kit.WaitAvailable(t, c, "v1."+r.Group, "True", "Passed")
		c.Get(t, r.Path(c)).OK(t)
	}},
	{Statement: "an APIService with a Service takes over a custom group version, until it is deleted", Proof: func(t *testing.T, c *kit.Cluster) {
		version := c.DefineWidgets(t, kit.AnySchema)
		c.Post(t, c.Path(version, "widgets"), kit.Widget(version, "custom")).Created(t)
		r := kit.StartAggregatedServer(t, c, "127.0.0.1")
		kit.MakeServiceTo(t, c)
		path := kit.APIServices + "/v1." + r.Group
		harness.Eventually(t, "the custom version has its own APIService", func() bool { return c.Get(t, path).Code == http.StatusOK })
		// The label marks the APIServices of custom versions that the server maintains.
		taken := map[string]any{"metadata": map[string]any{"labels": map[string]any{"kube-aggregator.kubernetes.io/automanaged": nil}}, "spec": kit.NewAPIService(c, r.Group, r.Port, r.CA)["spec"]}
		c.Patch(t, kit.MergePatch, path, taken).OK(t)
		kit.WaitAvailable(t, c, "v1."+r.Group, "True", "Passed")
		harness.Eventually(t, "the remote server responds", func() bool {
			return len(c.Get(t, r.Path(c)).Want(t, http.StatusOK, http.StatusServiceUnavailable).Names(t)) == 0
		})
		c.Delete(t, path).OK(t)
		harness.Eventually(t, "the custom resource is served again", func() bool { return c.Get(t, r.Path(c, "custom")).Code == http.StatusOK })
		kit.WaitAvailable(t, c, "v1."+r.Group, "True", "Local")
	}},
	{Statement: "an aggregated API may be an admission webhook, reached by the Service kubernetes", Proof: func(t *testing.T, c *kit.Cluster) {
		r := kit.StartAggregatedServer(t, c, "127.0.0.1")
		r.Register(t, c)
		// The caBundle is of another authority: the server uses its own.
		hook := kit.Manifest(`{metadata: {name: %[1]s}, webhooks: [{name: hook.example.com, sideEffects: None, admissionReviewVersions: [v1],
			clientConfig: {caBundle: %[2]s, service: {namespace: default, name: kubernetes, path: /apis/%[3]s/v1/reviews}},
			namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}},
			rules: [{apiGroups: [""], apiVersions: [v1], resources: [secrets], operations: [CREATE]}]}]}`, c.Namespace, base64.StdEncoding.EncodeToString(r.CA), r.Group)
		hooks := c.ClusterPath("admissionregistration.k8s.io/v1", "validatingwebhookconfigurations")
		c.Post(t, hooks, hook).Created(t)
		c.DeleteAtEnd(t, hooks+"/"+c.Namespace)
		harness.Eventually(t, "the webhook denies", func() bool {
			answer := c.Post(t, c.Path("v1", "secrets")+"?dryRun=All", kit.Manifest("{metadata: {name: s}}"))
			return answer.Code == http.StatusForbidden && strings.Contains(string(answer.Body), "no widget")
		})
		caller := r.LastRequest(t, "/apis/"+r.Group+"/v1/reviews").Header
		if user, groups := caller.Get("X-Remote-User"), caller["X-Remote-Group"]; user != "system:apiserver" || !slices.Contains(groups, "system:masters") {
			t.Errorf("the webhook was called by %s of %v", user, groups)
		}
	}},
	{Statement: "built-in APIs are served even without their APIService", Proof: func(t *testing.T, c *kit.Cluster) {
		kit.WaitAvailable(t, c, "v1.policy", "True", "Local")
		before := c.Get(t, kit.APIServices+"/v1.policy").Object(t)
		t.Cleanup(func() { // others need it with -against
			again := kit.Must(http.NewRequest(http.MethodPost, c.URL+kit.APIServices, strings.NewReader(string(kit.JSON(kit.With(before, nil, "metadata", "resourceVersion"))))))(t)
			again.Header.Set("Content-Type", "application/json")
			if _, err := c.HTTP.Do(again); err != nil {
				t.Error(err)
			}
		})
		c.Delete(t, kit.APIServices+"/v1.policy").OK(t)
		harness.Eventually(t, "the list of groups lacks it", func() bool { return !slices.Contains(groupNames(t, c), "policy") })
		c.Get(t, c.Path("policy/v1", "poddisruptionbudgets")).OK(t)
		kit.Equal(t, c.Get(t, "/apis/policy").OK(t).Text(t, "preferredVersion", "version"), "v1")
	}},
}

// TestUnavailableAPIs has its own server: missing discovery blocks the deletion of namespaces and garbage.
func TestUnavailableAPIs(t *testing.T) {
	kit.Prove(t, nil,
		kit.Promise{Statement: "requests for an aggregated API whose server fails get 503 with the reason", Proof: func(t *testing.T, c *kit.Cluster) {
			r := kit.StartAggregatedServer(t, c, "127.0.0.1")
			r.Register(t, c)
			r.Stop()
			// The first requests get the error itself, until the condition marks the API as unavailable.
			if body := c.Get(t, r.Path(c)).Want(t, http.StatusServiceUnavailable).Body; !strings.HasPrefix(string(body), "error trying to reach service: ") && string(body) != "service unavailable\n" {
				t.Errorf("the response is %s", body)
			}
			c.Patch(t, kit.MergePatch, kit.APIServices+"/v1."+r.Group, `{"metadata":{"labels":{"look":"again"}}}`).OK(t)
			if message := kit.WaitAvailable(t, c, "v1."+r.Group, "False", "FailedDiscoveryCheck"); !strings.Contains(message, "failing or missing response from https://localhost:") {
				t.Errorf("the message is %s", message)
			}
			harness.Eventually(t, "the metrics show it", func() bool {
				return strings.Contains(string(c.Get(t, "/metrics").Body), `aggregator_unavailable_apiservice_total{name="v1.`+r.Group+`",reason="FailedDiscoveryCheck"} 1`)
			})
			harness.Eventually(t, "requests are not passed on", func() bool {
				answer := c.Get(t, r.Path(c)).Want(t, http.StatusServiceUnavailable)
				return string(answer.Body) == "service unavailable\n" && strings.HasPrefix(answer.Header.Get("Content-Type"), "text/plain")
			})
		}},
		kit.Promise{Statement: "the condition Available says what an APIService lacks, and a metric counts it", Proof: func(t *testing.T, c *kit.Cluster) {
			group := c.Namespace + ".example.com"
			name := "v1." + group
			kit.RegisterAPIService(t, c, kit.NewAPIService(c, group, 443, nil))
			kit.WaitAvailable(t, c, name, "False", "ServiceNotFound")
			c.Get(t, c.Path(group+"/v1", "widgets")).Want(t, http.StatusServiceUnavailable)
			harness.Eventually(t, "the metrics show it", func() bool {
				return strings.Contains(string(c.Get(t, "/metrics").Body), `aggregator_unavailable_apiservice{name="`+name+`"} 1`)
			})
			c.Post(t, c.Path("v1", "services"), kit.Manifest("{metadata: {name: widgets}, spec: {ports: [{port: 444}]}}")).Created(t)
			kit.WaitAvailable(t, c, name, "False", "ServicePortError")
			c.Patch(t, kit.MergePatch, c.Path("v1", "services", "widgets"), `{"spec":{"ports":[{"port":443}]}}`).OK(t)
			kit.WaitAvailable(t, c, name, "False", "EndpointsNotFound")
			c.Post(t, c.Path("discovery.k8s.io/v1", "endpointslices"), kit.Manifest("{metadata: {name: a, labels: {kubernetes.io/service-name: widgets}}, "+
				"addressType: IPv4, ports: [{name: '', port: 443}], endpoints: [{addresses: [192.0.2.1], conditions: {ready: false}}]}")).Created(t)
			kit.WaitAvailable(t, c, name, "False", "MissingEndpoints")
		}},
		kit.Promise{Statement: "the server of an aggregated API needs a certificate for SERVICE.NAMESPACE.svc that caBundle verifies", Proof: func(t *testing.T, c *kit.Cluster) {
			r, other := kit.StartAggregatedServer(t, c, "127.0.0.1"), kit.StartAggregatedServer(t, c, "127.0.0.1")
			kit.MakeServiceTo(t, c)
			kit.RegisterAPIService(t, c, kit.NewAPIService(c, r.Group, r.Port, other.CA))
			if message := kit.WaitAvailable(t, c, "v1."+r.Group, "False", "FailedDiscoveryCheck"); !strings.Contains(message, "x509: certificate signed by unknown authority") {
				t.Errorf("the message is %s", message)
			}
			right := kit.NewAPIService(c, r.Group, r.Port, r.CA)
			c.Patch(t, kit.MergePatch, kit.APIServices+"/v1."+r.Group, map[string]any{"spec": right["spec"]}).OK(t)
			kit.WaitAvailable(t, c, "v1."+r.Group, "True", "Passed")
		}},
	)
}

// TestAggregatorRouting tests --enable-aggregator-routing. With -against, the server must have it.
func TestAggregatorRouting(t *testing.T) {
	kit.Prove(t, []string{"--enable-aggregator-routing"},
		kit.Promise{Statement: "requests go to a ready endpoint of the Service, on the target port of its port", Proof: func(t *testing.T, c *kit.Cluster) {
			address := ownAddress(t)
			r := kit.StartAggregatedServer(t, c, address)
			family := "IPv4"
			if strings.Contains(address, ":") {
				family = "IPv6"
			}
			c.Post(t, c.Path("v1", "services"), kit.Manifest("{metadata: {name: widgets}, spec: {ports: [{name: https, port: 443, targetPort: %d}]}}", r.Port)).Created(t)
			slice := kit.Manifest("{metadata: {name: a, labels: {kubernetes.io/service-name: widgets}}, addressType: %s, ports: [{name: https, port: %d}], "+
				"endpoints: [{addresses: ['%s'], conditions: {ready: true}}]}", family, r.Port, address)
			c.Post(t, c.Path("discovery.k8s.io/v1", "endpointslices"), slice).Created(t)
			kit.RegisterAPIService(t, c, kit.NewAPIService(c, r.Group, 443, r.CA))
			kit.WaitAvailable(t, c, "v1."+r.Group, "True", "Passed")
			c.Get(t, r.Path(c)).OK(t)

			c.Patch(t, kit.JSONPatch, c.Path("discovery.k8s.io/v1", "endpointslices", "a"), `[{"op":"replace","path":"/endpoints/0/conditions/ready","value":false}]`).OK(t)
			kit.WaitAvailable(t, c, "v1."+r.Group, "False", "MissingEndpoints")
			harness.Eventually(t, "requests are rejected", func() bool { return c.Get(t, r.Path(c)).Code == http.StatusServiceUnavailable })
		}},
	)
}

// ownAddress returns an address of this machine that endpoints may have: neither loopback nor link-local.
func ownAddress(t *testing.T) string {
	t.Helper()
	addresses := kit.Must(net.InterfaceAddrs())(t)
	for _, address := range addresses {
		if ip, _, err := net.ParseCIDR(address.String()); err == nil && ip.IsGlobalUnicast() {
			return ip.String()
		}
	}
	t.Fatal("this machine only has loopback addresses, which endpoints may not have")
	return ""
}

// groupNames returns the names of the groups in /apis, in order.
func groupNames(t testing.TB, c *kit.Cluster) []string {
	t.Helper()
	groups, _ := c.Get(t, "/apis").OK(t).Value(t, "groups").([]any)
	var names []string
	for _, group := range groups {
		names = append(names, group.(map[string]any)["name"].(string))
	}
	return names
}
