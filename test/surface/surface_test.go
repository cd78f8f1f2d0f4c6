package surface_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/legacyregistry"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/sqube/sqube/server/servertest"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
	"github.com/sqube/sqube/test/surface"
)

// TestSurface compares what there is to see of sqube with the kube-apiserver and kube-controller-manager in go.mod, except for
// what test/compare/differences.txt explains. TestMetrics does so with metrics that have no values yet.
func TestSurface(t *testing.T) {
	upstream := surface.Upstream(t)
	explained := surface.ReadExplained(t)
	byDefault := client(t)
	all := client(t, "--runtime-config=api/all=true", "--feature-gates=AllAlpha=true,AllBeta=true")
	help := output(t, "serve", "--help")

	served := byDefault.served(t)
	items := slices.Concat(
		byDefault.flags(t, upstream), plugins(t, help), controllers(t, help), byDefault.gates(t), byDefault.roles(t),
		served, surface.OnRequest(served, all.served(t)),
	)
	for _, kind := range []string{
		"flag", "gate", "plugin", "controller", "resource", "resource-on-request", "priority", "priority-on-request", "health",
		"health-on-request", "role", "right", "binding",
	} {
		t.Run(kind, func(t *testing.T) { explained.Compare(t, kind, upstream, items) })
	}
	t.Run("metric", func(t *testing.T) { metrics(t, upstream, byDefault.metrics(t)) })
}

// TestMetrics compares the metrics of a server in the process with kube-apiserver's: each is registered with the same stability and labels, or listed
// in test/compare/differences.txt with the reason, and then without values. Only ALPHA ones may be missing.
func TestMetrics(t *testing.T) {
	servertest.Run(t, servertest.Options{})
	upstream, explained := surface.Upstream(t), surface.ReadExplained(t)
	registered, err := surface.Metrics()
	harness.Must(t, err)
	families, err := legacyregistry.DefaultGatherer.Gather()
	harness.Must(t, err)
	for _, family := range families {
		if explained.Missing(surface.Item{Kind: "metric", Name: family.GetName()}) {
			t.Errorf("%s has values, but is missing according to differences.txt", family.GetName())
		}
	}
	for _, metric := range upstream {
		if metric.Kind == "metric" && metric.Fields["stability"] != "ALPHA" && explained.Missing(metric) {
			t.Errorf("%s is missing according to differences.txt, but not ALPHA", metric)
		}
	}
	registered = slices.DeleteFunc(registered, explained.Missing)
	explained.Compare(t, "metric", upstream, registered)
}

// running is a sqube server, as its administrator sees it.
type running struct {
	client *http.Client
	url    string
}

func client(t *testing.T, flags ...string) running {
	t.Helper()
	s := sqube.Start(t, sqube.Options{Datastore: harness.SQLite(t), Args: flags})
	client, err := rest.HTTPClientFor(s.Config(t))
	harness.Must(t, err)
	return running{client: client, url: s.URL}
}

func (s running) get(t *testing.T, path, accept string) []byte {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path, nil)
	harness.Must(t, err)
	request.Header.Set("Accept", accept)
	response, err := s.client.Do(request)
	harness.Must(t, err)
	defer response.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(response.Body); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v\n%s", path, response.Status, err, &body)
	}
	return body.Bytes()
}

func (s running) read(t *testing.T, path, accept string, into any) {
	t.Helper()
	if err := json.Unmarshal(s.get(t, path, accept), into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

const asJSON = "application/json"

// served returns resources, the priorities of their versions, and health checks.
func (s running) served(t *testing.T) []surface.Item {
	t.Helper()
	var items []surface.Item
	for _, path := range []string{"/api", "/apis"} {
		var groups apidiscoveryv2.APIGroupDiscoveryList
		s.read(t, path, "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", &groups)
		items = append(items, surface.Resources(groups.Items)...)
	}
	var services apiregistrationv1.APIServiceList
	s.read(t, "/apis/apiregistration.k8s.io/v1/apiservices", asJSON, &services)
	for _, service := range services.Items {
		items = append(items, surface.Priority(service.Spec.Group, service.Spec.Version, service.Spec.GroupPriorityMinimum, service.Spec.VersionPriority))
	}
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		items = append(items, surface.Checks(path, string(s.get(t, path+"?verbose", "")))...)
	}
	return items
}

// roles returns the roles, what they allow, and to whom.
func (s running) roles(t *testing.T) []surface.Item {
	t.Helper()
	const api = "/apis/rbac.authorization.k8s.io/v1/"
	var clusterRoles rbacv1.ClusterRoleList
	var clusterBindings rbacv1.ClusterRoleBindingList
	var roles rbacv1.RoleList
	var bindings rbacv1.RoleBindingList
	s.read(t, api+"clusterroles", asJSON, &clusterRoles)
	s.read(t, api+"clusterrolebindings", asJSON, &clusterBindings)
	s.read(t, api+"roles", asJSON, &roles)
	s.read(t, api+"rolebindings", asJSON, &bindings)
	var items []surface.Item
	for _, role := range clusterRoles.Items {
		items = append(items, surface.ClusterRole(role)...)
	}
	for _, binding := range clusterBindings.Items {
		items = append(items, surface.Binding("", binding.ObjectMeta, binding.RoleRef, binding.Subjects))
	}
	for _, role := range roles.Items {
		items = append(items, surface.Role(role)...)
	}
	for _, binding := range bindings.Items {
		items = append(items, surface.Binding(binding.Namespace, binding.ObjectMeta, binding.RoleRef, binding.Subjects))
	}
	return items
}

// families returns the metrics that have values.
func (s running) families(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(s.get(t, "/metrics", "")))
	harness.Must(t, err)
	return families
}

func (s running) gates(t *testing.T) []surface.Item {
	t.Helper()
	var items []surface.Item
	for _, gate := range s.families(t)["kubernetes_feature_enabled"].GetMetric() {
		labels := map[string]string{}
		for _, label := range gate.Label {
			labels[label.GetName()] = label.GetValue()
		}
		items = append(items, surface.Gate(labels["name"], gate.GetGauge().GetValue() == 1, labels["stage"]))
	}
	return items
}

// metrics checks the stability of the metrics that have values.
func (s running) metrics(t *testing.T) []surface.Item {
	t.Helper()
	var items []surface.Item
	for name, family := range s.families(t) {
		if fields := surface.Metric(family.GetHelp(), nil); fields != nil {
			items = append(items, surface.Item{Kind: "metric", Name: name, Fields: fields})
		}
	}
	return items
}

func metrics(t *testing.T, upstream, sqube []surface.Item) {
	known := surface.Index(upstream)
	checked := 0
	for _, metric := range sqube {
		if want, found := known[metric.Title()]; found {
			checked++
			for _, field := range []string{"stability", "deprecated"} {
				if metric.Fields[field] != want.Fields[field] {
					t.Errorf("%s: %s is %q, in kube-apiserver %q", metric.Title(), field, metric.Fields[field], want.Fields[field])
				}
			}
		}
	}
	if checked < 80 {
		t.Errorf("%d metrics of kube-apiserver have values", checked)
	}
}

func output(t *testing.T, args ...string) string {
	t.Helper()
	text, err := exec.CommandContext(t.Context(), sqube.Binary(t), args...).Output()
	if err != nil {
		t.Fatalf("sqube %v: %v", args, err)
	}
	return string(text)
}

// usage returns what the help says about a flag, in one line.
func usage(t *testing.T, help, flag string) string {
	t.Helper()
	_, text, found := strings.Cut(help, "      --"+flag+" ")
	if !found {
		t.Fatalf("no --%s in the help", flag)
	}
	text, _, _ = strings.Cut(text, "\n      --")
	text, _, _ = strings.Cut(text, "\n\n")
	return strings.Join(strings.Fields(text), " ")
}

// plugins returns the admission plugins in the order that the help gives: in parentheses, if they are off.
func plugins(t *testing.T, help string) []surface.Item {
	t.Helper()
	_, text, found := strings.Cut(usage(t, help, "enable-admission-plugins"), "off by default: ")
	if !found {
		t.Fatal("the help does not list the admission plugins")
	}
	var names []string
	on := map[string]bool{}
	for part := range strings.SplitSeq(strings.TrimSuffix(text, "."), ", ") {
		name := strings.Trim(part, "()")
		names, on[name] = append(names, name), name == part
	}
	return surface.Plugins(names, func(name string) bool { return on[name] })
}

func controllers(t *testing.T, help string) []surface.Item {
	t.Helper()
	parts := regexp.MustCompile(`Controllers of the API: (.*) Other controllers: (.*) Disabled-by-default controllers: (.*) \(default`).
		FindStringSubmatch(usage(t, help, "controllers"))
	if parts == nil {
		t.Fatal("the help does not list the controllers")
	}
	var items []surface.Item
	for i, part := range parts[1:] {
		for name := range strings.SplitSeq(part, ", ") {
			items = append(items, surface.Controller(name, i < 2))
		}
	}
	return items
}

// needed are values for flags that do not accept their default, which is none.
var needed = map[string]string{
	"ip": "192.0.2.1", "namedCertKey": "a.crt,a.key", "int32Slice": "29", "stringToString": "metric,label=value", "mapStringString": "api/all=true",
}

// flags returns those of kube-apiserver that sqube accepts, with the defaults that `sqube config` prints, or else /flagz. The default of
// one that does nothing, as a warning says, does not matter.
func (s running) flags(t *testing.T, upstream []surface.Item) []surface.Item {
	t.Helper()
	defaults := map[string]string{}
	for _, line := range regexp.MustCompile(`(?m)^#([a-z0-9-]+): (.*)$`).FindAllStringSubmatch(output(t, "config"), -1) {
		defaults["--"+line[1]] = plain(line[2])
	}
	flagz := map[string]string{}
	for _, line := range regexp.MustCompile(`(?m)^([a-z0-9-]+)\W(.*)$`).FindAllStringSubmatch(string(s.get(t, "/flagz", "text/plain")), -1) {
		flagz["--"+line[1]] = plain(line[2])
	}
	var items []surface.Item
	given := map[string]string{}
	for _, i := range upstream {
		if i.Kind != "flag" {
			continue
		}
		i.Fields["default"] = plain(i.Fields["default"])
		value := i.Fields["default"]
		if other, found := needed[i.Fields["type"]]; found && value == "" {
			value = other
		}
		given[i.Name] = value
	}
	without := unused(t, given)
	for _, i := range upstream {
		fields := map[string]string{}
		value, printed := defaults[i.Name]
		switch {
		case i.Kind != "flag" || given[i.Name] == unknown:
			continue
		case without[i.Name]:
			value = i.Fields["default"]
		case !printed: // it is deprecated
			value = flagz[i.Name]
		}
		fields["default"] = value
		delete(i.Fields, "type")
		delete(i.Fields, "deprecated")
		items = append(items, surface.Item{Kind: "flag", Name: i.Name, Fields: fields})
	}
	return items
}

// unknown replaces the value of a flag that sqube does not know.
const unknown = "unknown"

// unused passes flags with their values to sqube, which must accept the values, and returns those that do nothing, according to
// warnings. The last flag is wrong, which ends the start.
func unused(t *testing.T, flags map[string]string) map[string]bool {
	t.Helper()
	for {
		args := []string{"serve", "--data-dir", t.TempDir()}
		for name, value := range flags {
			if value != unknown {
				args = append(args, "--"+strings.ReplaceAll(name[2:], "-", "_")+"="+value) // kube-apiserver accepts _ for - too
			}
		}
		text, _ := exec.CommandContext(t.Context(), sqube.Binary(t), append(args, "--secure-port=0")...).CombinedOutput()
		if found := regexp.MustCompile(`unknown flag: (--[a-z0-9_-]+)`).FindSubmatch(text); found != nil {
			flags[strings.ReplaceAll(string(found[1]), "_", "-")] = unknown
			continue
		}
		if !strings.Contains(string(text), "--secure-port 0 must be between 1 and 65535") {
			t.Fatalf("the defaults of kube-apiserver's flags are refused:\n%s", text)
		}
		without := map[string]bool{}
		for _, warning := range regexp.MustCompile(`msg="a flag of kube-apiserver has no effect here" flag=(\S+)`).FindAllStringSubmatch(string(text), -1) {
			for name := range strings.SplitSeq(warning[1], ",") {
				without[name] = true
			}
		}
		return without
	}
}

// plain returns a default without quotes and brackets.
func plain(value string) string {
	return strings.NewReplacer(`"`, "", "[", "", "]", "", "{", "", "}", "", " ", "", "<nil>", "").Replace(value)
}
