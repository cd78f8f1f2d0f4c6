package concepts

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// Section "Kubernetes API Aggregation Layer": requests for an APIService's group version go to the Service that it names.
func TestAggregation(t *testing.T) {
	prove(t, nil,
		promise{"requests for a group version are answered by the Service that its APIService names", func(t *testing.T, c *cluster) {
			r := startRemote(t, c, "127.0.0.1")
			r.register(t, c)
			object := widget(r.group+"/v1", "a")
			if uid := c.post(t, r.path(c), object).want(t, http.StatusCreated).text(t, "metadata", "uid"); uid != r.group+"-a" {
				t.Errorf("the object made has the uid %q", uid)
			}
			if names := c.get(t, r.path(c)+"?labelSelector=a%3Db").want(t, http.StatusOK).names(t); !slices.Equal(names, []string{"a"}) {
				t.Errorf("the list has %v", names)
			}
			if query := r.last(t, r.path(c)).URL.RawQuery; query != "labelSelector=a%3Db" {
				t.Errorf("the remote server got the query %q", query)
			}
			c.delete(t, r.path(c, "a")).want(t, http.StatusOK)
			c.get(t, r.path(c, "a")).refused(t, http.StatusNotFound, "NotFound", "the widget server has no a")
			if resources, _ := c.get(t, "/apis/"+r.group+"/v1").want(t, http.StatusOK).value(t, "resources").([]any); len(resources) != 1 {
				t.Errorf("the version's document has the resources %v", resources)
			}
		}},
		promise{"the server of an aggregated API learns who the user is, from nobody but the front proxy", func(t *testing.T, c *cluster) {
			r := startRemote(t, c, "127.0.0.1")
			r.register(t, c)
			who := c.impersonating(t, rest.ImpersonationConfig{UserName: "jane", UID: "42", Groups: []string{"system:masters", "a/b"}, Extra: map[string][]string{"example.com/scopes": {"x", "y"}}})
			who.send(t, http.MethodGet, r.path(c), header{"X-Remote-User", "eve", "X-Remote-Group", "evil", "X-Remote-Extra-Role", "king"}, nil).want(t, http.StatusOK)
			got := r.last(t, r.path(c))
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
			if name, allowed := got.TLS.PeerCertificates[0].Subject.CommonName, authentication(t, c).text(t, "data", "requestheader-allowed-names"); !strings.Contains(allowed, `"`+name+`"`) {
				t.Errorf("the front proxy's name is %q, allowed are %s", name, allowed)
			}
		}},
		promise{"a user who may not is refused before the request gets to the aggregated API", func(t *testing.T, c *cluster) {
			r := startRemote(t, c, "127.0.0.1")
			r.register(t, c)
			jane := c.as(t, "jane")
			jane.get(t, r.path(c, "secret")).refused(t, http.StatusForbidden, "Forbidden", `User "jane" cannot get resource "widgets" in API group "`+r.group+`"`)
			for _, request := range r.seen() {
				if strings.HasSuffix(request, "/secret") {
					t.Errorf("it got %s", request)
				}
			}
			c.post(t, c.path("rbac.authorization.k8s.io/v1", "roles"), manifest("{metadata: {name: r}, rules: [{apiGroups: [%s], resources: [widgets], verbs: [list]}]}", r.group)).want(t, http.StatusCreated)
			c.post(t, c.path("rbac.authorization.k8s.io/v1", "rolebindings"), manifest("{metadata: {name: r}, subjects: [{kind: User, name: jane}], "+
				"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: r}}")).want(t, http.StatusCreated)
			eventually(t, "jane may list", func() bool { return jane.get(t, r.path(c)).Code == http.StatusOK })
		}},
		promise{"a watch of an aggregated API brings each event when it happens", func(t *testing.T, c *cluster) {
			r := startRemote(t, c, "127.0.0.1")
			r.register(t, c)
			watch := c.watch(t, r.path(c)+"?watch=true")
			for i := range 3 {
				name := fmt.Sprint("a", i)
				c.post(t, r.path(c), widget(r.group+"/v1", name)).want(t, http.StatusCreated)
				if got := watch.next(t); got.name() != name {
					t.Errorf("event %d is about %s", i, got.name())
				}
			}
		}},
		promise{"connections to an aggregated API are upgraded, as exec and port forwarding need it", func(t *testing.T, c *cluster) {
			r := startRemote(t, c, "127.0.0.1")
			r.register(t, c)
			connection, reader, response := dialUpgrade(t, c, r.path(c, "a", "echo"))
			if response.StatusCode != http.StatusSwitchingProtocols || response.Header.Get("Upgrade") != "echo" {
				t.Fatalf("the answer is %s, %v", response.Status, response.Header)
			}
			for _, line := range []string{"to and fro\n", "and again\n"} {
				if _, err := connection.Write([]byte(line)); err != nil {
					t.Fatal(err)
				}
				if got, err := reader.ReadString('\n'); err != nil || got != line {
					t.Fatalf("sent %q, got %q, %v", line, got, err)
				}
			}
			if user := r.last(t, r.path(c, "a", "echo")).Header.Get("X-Remote-User"); user == "" {
				t.Error("the server was not told who the user is")
			}
		}},
		promise{"a redirect of an aggregated API is not passed on", func(t *testing.T, c *cluster) {
			r := startRemote(t, c, "127.0.0.1")
			r.register(t, c)
			c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			answer := c.get(t, r.path(c, "a", "redirect")).want(t, http.StatusBadGateway)
			if answer.Header.Get("Location") != "" || !strings.Contains(string(answer.Body), "redirect") {
				t.Errorf("the answer is %v, %s", answer.Header, answer.Body)
			}
		}},
		promise{"insecureSkipTLSVerify takes any certificate, and goes with no caBundle", func(t *testing.T, c *cluster) {
			r := startRemote(t, c, "127.0.0.1")
			serviceTo(t, c)
			insecure := with(apiService(c, r.group, r.port, r.ca), true, "spec", "insecureSkipTLSVerify")
			c.post(t, apiServices, insecure).refused(t, http.StatusUnprocessableEntity, "Invalid", "may not be true if caBundle is present")
			registerAPIService(t, c, with(insecure, nil, "spec", "caBundle"))
			waitAvailable(t, c, "v1."+r.group, "True", "Passed")
			c.get(t, r.path(c)).want(t, http.StatusOK)
		}},
		promise{"an APIService with a Service takes a custom group version over, and gives it back when it goes", func(t *testing.T, c *cluster) {
			version := c.widgets(t, anySchema)
			c.post(t, c.path(version, "widgets"), widget(version, "custom")).want(t, http.StatusCreated)
			r := startRemote(t, c, "127.0.0.1")
			serviceTo(t, c)
			path := apiServices + "/v1." + r.group
			eventually(t, "the custom version has its own APIService", func() bool { return c.get(t, path).Code == http.StatusOK })
			// The label is what the server keeps APIServices of custom versions by.
			taken := map[string]any{"metadata": map[string]any{"labels": map[string]any{"kube-aggregator.kubernetes.io/automanaged": nil}}, "spec": apiService(c, r.group, r.port, r.ca)["spec"]}
			c.patch(t, mergePatch, path, taken).want(t, http.StatusOK)
			waitAvailable(t, c, "v1."+r.group, "True", "Passed")
			eventually(t, "the remote server answers", func() bool {
				return len(c.get(t, r.path(c)).want(t, http.StatusOK, http.StatusServiceUnavailable).names(t)) == 0
			})
			c.delete(t, path).want(t, http.StatusOK)
			eventually(t, "the custom resource is back", func() bool { return c.get(t, r.path(c, "custom")).Code == http.StatusOK })
			waitAvailable(t, c, "v1."+r.group, "True", "Local")
		}},
		promise{"an aggregated API may be an admission webhook, reached by the Service kubernetes", func(t *testing.T, c *cluster) {
			r := startRemote(t, c, "127.0.0.1")
			r.register(t, c)
			// The caBundle is of another authority: the server knows its own.
			hook := manifest(`{metadata: {name: %[1]s}, webhooks: [{name: hook.example.com, sideEffects: None, admissionReviewVersions: [v1],
				clientConfig: {caBundle: %[2]s, service: {namespace: default, name: kubernetes, path: /apis/%[3]s/v1/reviews}},
				namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}},
				rules: [{apiGroups: [""], apiVersions: [v1], resources: [secrets], operations: [CREATE]}]}]}`, c.namespace, base64.StdEncoding.EncodeToString(r.ca), r.group)
			hooks := c.global("admissionregistration.k8s.io/v1", "validatingwebhookconfigurations")
			c.post(t, hooks, hook).want(t, http.StatusCreated)
			c.deleteLater(t, hooks+"/"+c.namespace)
			eventually(t, "the webhook refuses", func() bool {
				answer := c.post(t, c.path("v1", "secrets")+"?dryRun=All", manifest("{metadata: {name: s}}"))
				return answer.Code == http.StatusForbidden && strings.Contains(string(answer.Body), "no widget")
			})
			caller := r.last(t, "/apis/"+r.group+"/v1/reviews").Header
			if user, groups := caller.Get("X-Remote-User"), caller["X-Remote-Group"]; user != "system:apiserver" || !slices.Contains(groups, "system:masters") {
				t.Errorf("the webhook was called by %s of %v", user, groups)
			}
		}},
		promise{"what the server has built in is served without its APIService too", func(t *testing.T, c *cluster) {
			waitAvailable(t, c, "v1.policy", "True", "Local")
			before := c.get(t, apiServices+"/v1.policy").object(t)
			t.Cleanup(func() { // which, with -against, is for others to have
				again, err := http.NewRequest(http.MethodPost, c.url+apiServices, strings.NewReader(string(asYAML(with(before, nil, "metadata", "resourceVersion")))))
				if err != nil {
					t.Fatal(err)
				}
				again.Header.Set("Content-Type", "application/json")
				if _, err := c.http.Do(again); err != nil {
					t.Error(err)
				}
			})
			c.delete(t, apiServices+"/v1.policy").want(t, http.StatusOK)
			eventually(t, "the list of groups lacks it", func() bool { return !slices.Contains(groupNames(t, c), "policy") })
			c.get(t, c.path("policy/v1", "poddisruptionbudgets")).want(t, http.StatusOK)
			if version := c.get(t, "/apis/policy").want(t, http.StatusOK).text(t, "preferredVersion", "version"); version != "v1" {
				t.Errorf("the group prefers %q", version)
			}
		}},
		promise{"deleting a namespace deletes its objects of aggregated APIs", func(t *testing.T, c *cluster) {
			r := startRemote(t, c, "127.0.0.1")
			r.register(t, c)
			doomed := c.namespace + "-doomed"
			c.post(t, "/api/v1/namespaces", manifest("{metadata: {name: %s}}", doomed)).want(t, http.StatusCreated)
			widgets := c.global(r.group+"/v1", "namespaces", doomed, "widgets")
			c.post(t, widgets, widget(r.group+"/v1", "a")).want(t, http.StatusCreated)
			r.waitDiscovered(t, c)
			c.delete(t, "/api/v1/namespaces/"+doomed).want(t, http.StatusOK)
			c.gone(t, "/api/v1/namespaces/"+doomed)
			if left := r.list(widgets); len(left) > 0 {
				t.Errorf("%v is left", left)
			}
		}},
		promise{"objects of aggregated APIs go with their owners", func(t *testing.T, c *cluster) {
			r := startRemote(t, c, "127.0.0.1")
			r.register(t, c)
			owner := c.post(t, c.path("v1", "configmaps"), configMap("owner", nil)).want(t, http.StatusCreated)
			owned := with(widget(r.group+"/v1", "owned"), []any{manifest("{apiVersion: v1, kind: ConfigMap, name: owner, uid: %s}", owner.text(t, "metadata", "uid"))}, "metadata", "ownerReferences")
			c.post(t, r.path(c), owned).want(t, http.StatusCreated)
			r.waitDiscovered(t, c)
			c.delete(t, c.path("v1", "configmaps", "owner")).want(t, http.StatusOK)
			c.gone(t, r.path(c, "owned"))
		}},
	)
}

// TestUnavailableAPIs has a server of its own: what of discovery can't be had keeps namespaces from going, and garbage.
func TestUnavailableAPIs(t *testing.T) {
	prove(t, nil,
		promise{"an aggregated API whose server fails is answered with 503 that tells of it", func(t *testing.T, c *cluster) {
			r := startRemote(t, c, "127.0.0.1")
			r.register(t, c)
			r.stop()
			// The first that notice get the error itself, until the condition says that the API is not available.
			if body := c.get(t, r.path(c)).want(t, http.StatusServiceUnavailable).Body; !strings.HasPrefix(string(body), "error trying to reach service: ") && string(body) != "service unavailable\n" {
				t.Errorf("the answer is %s", body)
			}
			c.patch(t, mergePatch, apiServices+"/v1."+r.group, `{"metadata":{"labels":{"look":"again"}}}`).want(t, http.StatusOK)
			if message := waitAvailable(t, c, "v1."+r.group, "False", "FailedDiscoveryCheck"); !strings.Contains(message, "failing or missing response from https://localhost:") {
				t.Errorf("the message is %s", message)
			}
			eventually(t, "the metrics tell of it", func() bool {
				return strings.Contains(string(c.get(t, "/metrics").Body), `aggregator_unavailable_apiservice_total{name="v1.`+r.group+`",reason="FailedDiscoveryCheck"} 1`)
			})
			eventually(t, "requests are not passed on", func() bool {
				answer := c.get(t, r.path(c)).want(t, http.StatusServiceUnavailable)
				return string(answer.Body) == "service unavailable\n" && strings.HasPrefix(answer.Header.Get("Content-Type"), "text/plain")
			})
		}},
		promise{"the condition Available tells what an APIService lacks, and a metric counts it", func(t *testing.T, c *cluster) {
			group := c.namespace + ".example.com"
			name := "v1." + group
			registerAPIService(t, c, apiService(c, group, 443, nil))
			waitAvailable(t, c, name, "False", "ServiceNotFound")
			c.get(t, c.path(group+"/v1", "widgets")).want(t, http.StatusServiceUnavailable)
			eventually(t, "the metrics tell of it", func() bool {
				return strings.Contains(string(c.get(t, "/metrics").Body), `aggregator_unavailable_apiservice{name="`+name+`"} 1`)
			})
			c.post(t, c.path("v1", "services"), manifest("{metadata: {name: widgets}, spec: {ports: [{port: 444}]}}")).want(t, http.StatusCreated)
			waitAvailable(t, c, name, "False", "ServicePortError")
			c.patch(t, mergePatch, c.path("v1", "services", "widgets"), `{"spec":{"ports":[{"port":443}]}}`).want(t, http.StatusOK)
			waitAvailable(t, c, name, "False", "EndpointsNotFound")
			c.post(t, c.path("discovery.k8s.io/v1", "endpointslices"), manifest("{metadata: {name: a, labels: {kubernetes.io/service-name: widgets}}, "+
				"addressType: IPv4, ports: [{name: '', port: 443}], endpoints: [{addresses: [192.0.2.1], conditions: {ready: false}}]}")).want(t, http.StatusCreated)
			waitAvailable(t, c, name, "False", "MissingEndpoints")
		}},
		promise{"the server of an aggregated API must have a certificate that caBundle verifies for SERVICE.NAMESPACE.svc", func(t *testing.T, c *cluster) {
			r, other := startRemote(t, c, "127.0.0.1"), startRemote(t, c, "127.0.0.1")
			serviceTo(t, c)
			registerAPIService(t, c, apiService(c, r.group, r.port, other.ca))
			if message := waitAvailable(t, c, "v1."+r.group, "False", "FailedDiscoveryCheck"); !strings.Contains(message, "x509: certificate signed by unknown authority") {
				t.Errorf("the message is %s", message)
			}
			right := apiService(c, r.group, r.port, r.ca)
			c.patch(t, mergePatch, apiServices+"/v1."+r.group, map[string]any{"spec": right["spec"]}).want(t, http.StatusOK)
			waitAvailable(t, c, "v1."+r.group, "True", "Passed")
		}},
	)
}

// TestAggregatorRouting is about --enable-aggregator-routing. With -against the server must have it.
func TestAggregatorRouting(t *testing.T) {
	prove(t, []string{"--enable-aggregator-routing"},
		promise{"requests go to a ready endpoint of the Service, on the port that its Service port means", func(t *testing.T, c *cluster) {
			address := ownAddress(t)
			r := startRemote(t, c, address)
			family := "IPv4"
			if strings.Contains(address, ":") {
				family = "IPv6"
			}
			c.post(t, c.path("v1", "services"), manifest("{metadata: {name: widgets}, spec: {ports: [{name: https, port: 443, targetPort: %d}]}}", r.port)).want(t, http.StatusCreated)
			slice := manifest("{metadata: {name: a, labels: {kubernetes.io/service-name: widgets}}, addressType: %s, ports: [{name: https, port: %d}], "+
				"endpoints: [{addresses: ['%s'], conditions: {ready: true}}]}", family, r.port, address)
			c.post(t, c.path("discovery.k8s.io/v1", "endpointslices"), slice).want(t, http.StatusCreated)
			registerAPIService(t, c, apiService(c, r.group, 443, r.ca))
			waitAvailable(t, c, "v1."+r.group, "True", "Passed")
			c.get(t, r.path(c)).want(t, http.StatusOK)

			c.patch(t, jsonPatch, c.path("discovery.k8s.io/v1", "endpointslices", "a"), `[{"op":"replace","path":"/endpoints/0/conditions/ready","value":false}]`).want(t, http.StatusOK)
			waitAvailable(t, c, "v1."+r.group, "False", "MissingEndpoints")
			eventually(t, "requests are refused", func() bool { return c.get(t, r.path(c)).Code == http.StatusServiceUnavailable })
		}},
	)
}

// ownAddress is an address of this machine that an endpoint may have: not loopback, nor link-local.
func ownAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range addresses {
		if ip, _, err := net.ParseCIDR(address.String()); err == nil && ip.IsGlobalUnicast() {
			return ip.String()
		}
	}
	t.Fatal("this machine has no address besides loopback, which endpoints may not have")
	return ""
}

// groupNames are those of /apis, in order.
func groupNames(t testing.TB, c *cluster) []string {
	t.Helper()
	groups, _ := c.get(t, "/apis").want(t, http.StatusOK).value(t, "groups").([]any)
	var names []string
	for _, group := range groups {
		names = append(names, group.(map[string]any)["name"].(string))
	}
	return names
}
