package customresources

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
)

// Widely used definitions, as published by their projects.
// published is a directory in a published Go module.
type published struct {
	module string // and its version
	sum    string // of its content, as in a go.sum
	path   string
}

var (
	gatewayAPI = published{"sigs.k8s.io/gateway-api@v1.6.3", "h1:lKpJa5bGlraC/QeACvCpsHLdmO6y0iKfzVl6gzaFEYc=",
		"config/crd"}
	certManager = published{"github.com/cert-manager/cert-manager@v1.21.2",
		"h1:UWgoYM+KLNtRlqmoWOKjKBOBUPVHeepQ6/ac3ERJW68=", "deploy/crds"}
	prometheus = published{"github.com/prometheus-operator/prometheus-operator@v0.85.0",
		"h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=", "example/prometheus-operator-crd"}
	argoCD = published{"github.com/argoproj/argo-cd/v3@v3.4.0", "h1:yZwfaOIzE/aQTA52mOfeZQbribmyxKYvMgirQja4eX0=",
		"manifests/crds"}
)

// fetch returns the directory in the module cache.
func (p published) fetch(t testing.TB) string {
	t.Helper()
	return filepath.Join(harness.Module(t, p.module, p.sum), p.path)
}

// install applies the definitions, the large ones as documented, and waits until kubectl can find their resources. It returns
// kubectl's arguments that name them all.
func (p published) install(t testing.TB, c *kit.Cluster) []string {
	t.Helper()
	files := []string{"-f", p.fetch(t)}
	if _, err := os.Stat(filepath.Join(files[1], "kustomization.yaml")); err == nil {
		files[0] = "-k"
	}
	names := strings.Fields(kit.MustKubectl(t, c, append([]string{"apply", "--server-side", "-o", "name"}, files...)...))
	var definitions []string
	for _, name := range names {
		if definition, ok := strings.CutPrefix(name, "customresourcedefinition.apiextensions.k8s.io/"); ok {
			definitions = append(definitions, definition)
			harness.Eventually(t, definition+" is established", func() bool {
				status, _ := kit.Condition(t, c.Get(t, kit.Definitions+"/"+definition), "Established")
				return status == "True"
			})
		}
	}
	// Discovery has them a moment later.
	harness.Eventually(t, "all definitions are discovered", func() bool {
		_, lists, err := c.Kube.Discovery().ServerGroupsAndResources()
		harness.Must(t, err)
		found := map[string]bool{}
		for _, list := range lists {
			group, _, _ := strings.Cut(list.GroupVersion, "/")
			for _, resource := range list.APIResources {
				found[resource.Name+"."+group] = true
			}
		}
		return !slices.ContainsFunc(definitions, func(name string) bool { return !found[name] })
	})
	return files
}

// create creates objects in YAML, and returns kubectl's output.
func create(t testing.TB, c *kit.Cluster, text string) (output string, ok bool) {
	t.Helper()
	return c.Kubectl(t, text, "create", "-f", "-")
}

// creates fails the test unless the objects can be created.
func creates(t testing.TB, c *kit.Cluster, text string) {
	t.Helper()
	if output, ok := create(t, c, text); !ok {
		t.Fatalf("kubectl create: %s\n%s", output, text)
	}
}

// refusesEach fails the test unless each object is rejected with the message.
func refusesEach(t testing.TB, c *kit.Cluster, refused map[string]string) {
	t.Helper()
	for text, part := range refused {
		if output, ok := create(t, c, text); ok || !strings.Contains(output, part) {
			t.Errorf("kubectl create does not print %q, but %s\n%s", part, output, text)
		}
	}
}

// prints fails the test unless kubectl's output has these parts; a space in them matches any number of spaces.
func prints(t testing.TB, c *kit.Cluster, args string, parts ...string) {
	t.Helper()
	output := strings.Join(strings.Fields(kit.MustKubectl(t, c, strings.Fields(args)...)), " ")
	for _, part := range parts {
		if !strings.Contains(output, part) {
			t.Errorf("kubectl %s lacks %q:\n%s", args, part, output)
		}
	}
}

var fieldDefinitions = []kit.Promise{
	{Statement: "Gateway API can be used as documented", Proof: func(t *testing.T, c *kit.Cluster) {
		files := gatewayAPI.install(t, c)
		creates(t, c, `
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: example}
spec: {controllerName: example.com/controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: front}
spec: {gatewayClassName: example, listeners: [{name: http, protocol: HTTP, port: 80}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web}
spec: {parentRefs: [{name: front}], hostnames: [example.com], rules: [{backendRefs: [{name: web, port: 80}]}]}`)
		path := c.Path("gateway.networking.k8s.io/v1", "httproutes")
		c.Get(t, path+"/web").HasField(t, `[{"backendRefs":[{"group":"","kind":"Service","name":"web","port":80,"weight":1}],"matches":[{"path":{"type":"PathPrefix","value":"/"}}]}]`, "spec", "rules")
		c.Get(t, c.Path("gateway.networking.k8s.io/v1", "gateways", "front")).
			HasField(t, `[{"allowedRoutes":{"namespaces":{"from":"Same"}},"name":"http","port":80,"protocol":"HTTP"}]`, "spec",
				"listeners")
		route := "{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: bad}, spec: {rules: [%s]}}"
		refusesEach(t, c, map[string]string{
			strings.Replace(route, "%s", "{filters: [{type: RequestHeaderModifier}]}",
				1): "filter.requestHeaderModifier must be specified for RequestHeaderModifier filter.type",
			strings.Replace(route, "%s", "{matches: [{path: {type: PathPrefix, value: x}}]}",
				1): "value must be an absolute path and start with '/'",
			strings.Replace(route, "%s", "{backendRefs: [{name: web}]}",
				1): "Must have port for Service reference",
			"{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: bad}, spec: {gatewayClassName: a, listeners: []}}": "spec.listeners: Invalid value: 0: spec.listeners in body should have at least 1 items",
			`{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: bad}, spec: {gatewayClassName: a, listeners: [
				{name: a, protocol: HTTP, port: 80}, {name: a, protocol: HTTP, port: 81}]}}`: "Listener name must be unique within the Gateway",
		})
		if output, ok := c.Kubectl(t, "", "patch", "gatewayclass", "example", "--type=merge", "-p", `{"spec":{"controllerName":"example.com/other"}}`); ok || !strings.Contains(output, "Value is immutable") {
			t.Errorf("the controller of a class was changed: %s", output)
		}
		kit.MustKubectl(t, c, "patch", "gateway", "front", "--subresource=status", "--type=merge", "-p",
			`{"status":{"addresses":[{"value":"192.0.2.1"}]}}`)
		prints(t, c, "get gtw", "NAME CLASS ADDRESS PROGRAMMED AGE front example 192.0.2.1 Unknown")
		prints(t, c, "get httproutes", "NAME HOSTNAMES AGE web [\"example.com\"]")
		prints(t, c, "explain httproute.spec.rules.filters.type", "ENUM: RequestHeaderModifier")
		// It includes a policy that prevents replacing these definitions with experimental ones.
		experimental := filepath.Join(gatewayAPI.fetch(t), "experimental", "gateway.networking.k8s.io_httproutes.yaml")
		harness.Eventually(t, "experimental definitions are rejected", func() bool {
			output, ok := c.Kubectl(t, "", "apply", "--server-side", "--dry-run=server", "-f", experimental)
			return !ok && strings.Contains(output, "Installing experimental CRDs on top of standard channel CRDs is prohibited by default")
		})
		if again := kit.MustKubectl(t, c, append([]string{"apply", "--server-side"}, files...)...); strings.Count(again, " serverside-applied") != 12 {
			t.Errorf("applied again: %s", again)
		}
		kit.MustKubectl(t, c, append([]string{"delete"}, files...)...)
		c.WaitGone(t, path)
	}},
	{Statement: "the definitions of cert-manager can be used as documented", Proof: func(t *testing.T, c *kit.Cluster) {
		certManager.install(t, c)
		creates(t, c, `
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: own}
spec: {selfSigned: {}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: web}
spec: {secretName: web-tls, dnsNames: [example.com], issuerRef: {name: own, kind: Issuer}, privateKey: {algorithm: ECDSA, size: 256}}`)
		bad := "{apiVersion: cert-manager.io/v1, kind: Certificate, metadata: {name: bad}, spec: {%s}}"
		refusesEach(t, c, map[string]string{
			strings.Replace(bad, "%s", "issuerRef: {name: own}",
				1): "spec.secretName: Required value",
			strings.Replace(bad, "%s", "secretName: a, issuerRef: {name: own}, privateKey: {algorithm: DSA}",
				1): `spec.privateKey.algorithm: Unsupported value: "DSA": supported values: "RSA", "ECDSA", "Ed25519"`,
			strings.Replace(bad, "%s", "secretName: a, issuerRef: {name: own}, duration: 5",
				1): "spec.duration: Invalid value",
			strings.Replace(bad, "%s", "secretName: a, issuerRef: {name: own}, keystore: {}",
				1): `unknown field "spec.keystore"`,
		})
		kit.MustKubectl(t, c, "patch", "certificate", "web", "--subresource=status", "--type=merge", "-p",
			`{"status":{"conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2020-01-01T00:00:00Z","reason":"Ready"}]}}`)
		prints(t, c, "get cert", "NAME READY SECRET AGE web True web-tls")
		prints(t, c, "get cert -o wide", "NAME READY SECRET ISSUER STATUS AGE web True web-tls own")
		prints(t, c, "get cert-manager", "issuer.cert-manager.io/own", "certificate.cert-manager.io/web")
		prints(t, c, "get certificates --field-selector=metadata.name=web -o name", "certificate.cert-manager.io/web")
		prints(t, c, "explain certificate.spec.privateKey.rotationPolicy", "GROUP: cert-manager.io",
			"rotationPolicy <string>")
	}},
	{Statement: "the definitions of the Prometheus operator, the largest of all, can be used as documented", Proof: func(t *testing.T, c *kit.Cluster) {
		large := filepath.Join(prometheus.fetch(t), "monitoring.coreos.com_prometheuses.yaml")
		if output, ok := c.Kubectl(t, "", "apply", "-f", large); ok || !strings.Contains(output, "metadata.annotations: Too long: may not be more than 262144 bytes") {
			t.Errorf("a definition too large for kubectl apply was applied: %s", output)
		}
		prometheus.install(t, c)
		creates(t, c, `
apiVersion: monitoring.coreos.com/v1
kind: Prometheus
metadata: {name: main}
spec: {replicas: 2, serviceMonitorSelector: {}, resources: {requests: {memory: 400Mi}}}
---
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata: {name: web}
spec: {selector: {matchLabels: {app: web}}, endpoints: [{port: http, interval: 30s}]}
---
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata: {name: rules}
spec: {groups: [{name: g, rules: [{alert: Down, expr: up == 0, for: 5m}, {record: r, expr: 1}]}]}`)
		path := c.Path("monitoring.coreos.com/v1", "prometheuses")
		c.Get(t, path+"/main").HasField(t, `"30s"`, "spec", "evaluationInterval").HasField(t, `"30s"`, "spec", "scrapeInterval").
			HasField(t, `"web"`, "spec", "portName")
		monitor := "{apiVersion: monitoring.coreos.com/v1, kind: ServiceMonitor, metadata: {name: bad}, spec: {%s}}"
		refusesEach(t, c, map[string]string{
			strings.Replace(monitor, "%s", "endpoints: []", 1): "spec.selector: Required value",
			strings.Replace(monitor, "%s", "selector: {}, endpoints: [{interval: 5x}]",
				1): "spec.endpoints[0].interval: Invalid value: \"5x\"",
			strings.Replace(monitor, "%s", "selector: {}, endpoints: [{scheme: ftp}]",
				1): "spec.endpoints[0].scheme: Unsupported value: \"ftp\"",
		})
		kit.MustKubectl(t, c, "scale", "prometheus/main", "--replicas=3")
		c.Get(t, path+"/main").HasField(t, "3", "spec", "shards") // the replicas of scale in its definition
		prints(t, c, "get prom", "NAME VERSION DESIRED READY RECONCILED AVAILABLE AGE main 2")
		prints(t, c, "get smon,promrule -o name", "servicemonitor.monitoring.coreos.com/web",
			"prometheusrule.monitoring.coreos.com/rules")
		prints(t, c, "explain prometheus.spec.remoteWrite.sigv4", "GROUP: monitoring.coreos.com", "roleArn")
	}},
	{Statement: "the definitions of Argo CD can be used as documented", Proof: func(t *testing.T, c *kit.Cluster) {
		argoCD.install(t, c)
		creates(t, c, `
apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: shop}
spec: {destinations: [{namespace: "*", server: "*"}], sourceRepos: ["*"]}
---
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: web, finalizers: [resources-finalizer.argocd.argoproj.io/background]}
spec: {project: shop, source: {repoURL: "https://example.com/shop.git", path: web, helm: {valuesObject: {any: {thing: [1]}}}}, destination: {namespace: shop, server: "https://kubernetes.default.svc"}}
---
apiVersion: argoproj.io/v1alpha1
kind: ApplicationSet
metadata: {name: all}
spec: {generators: [{list: {elements: [{name: a}]}}, {matrix: {generators: [{git: {repoURL: x, revision: HEAD, directories: [{path: p}]}}, {clusters: {}}]}}],
  template: {metadata: {name: "{{name}}"}, spec: {project: shop, source: {repoURL: x}, destination: {}}}}`)
		path := c.Path("argoproj.io/v1alpha1", "applications")
		c.Get(t, path+"/web").HasField(t, `{"any":{"thing":[1]}}`, "spec", "source", "helm", "valuesObject")
		refusesEach(t, c, map[string]string{
			"{apiVersion: argoproj.io/v1alpha1, kind: Application, metadata: {name: bad}, spec: {destination: {}}}":                                "spec.project: Required value",
			"{apiVersion: argoproj.io/v1alpha1, kind: Application, metadata: {name: bad}, spec: {project: a, destination: {}, source: {path: b}}}": "spec.source.repoURL: Required value",
		})
		c.Patch(t, kit.MergePatch, path+"/web", `{"status":{"sync":{"status":"Synced"},"health":{"status":"Healthy"}}}`).
			OK(t) // there is no subresource
		prints(t, c, "get app", "NAME SYNC STATUS HEALTH STATUS web Synced Healthy")
		prints(t, c, "get appset,appproj -o name", "applicationset.argoproj.io/all", "appproject.argoproj.io/shop")
		prints(t, c, "explain application.spec.source.helm", "GROUP: argoproj.io", "valuesObject <Object>")
		kit.MustKubectl(t, c, "delete", "application", "web", "--wait=false")
		c.Patch(t, kit.JSONPatch, path+"/web", `[{"op":"remove","path":"/metadata/finalizers"}]`).OK(t)
	}},
}
