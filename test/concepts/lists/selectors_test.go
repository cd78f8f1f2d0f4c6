package lists

import (
	"net/url"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

// chosen is what a selector selects of the objects that the promise has
// created.
type chosen struct {
	selector string
	names    string // separated by spaces
}

// choose checks what label or field selectors select.
func choose(t *testing.T, c *kit.Cluster, path, parameter string, all []chosen) {
	t.Helper()
	for _, want := range all {
		list := c.Get(t, path+"?"+parameter+"="+url.QueryEscape(want.selector)).OK(t)
		if got := strings.Join(list.Names(t), " "); got != want.names {
			t.Errorf("%s %q finds %q instead of %q", parameter, want.selector, got, want.names)
		}
	}
}

// unselectable checks the errors of invalid selectors.
func unselectable(t *testing.T, c *kit.Cluster, path, parameter string, messages map[string]string) {
	t.Helper()
	for selector, message := range messages {
		c.Get(t, path+"?"+parameter+"="+url.QueryEscape(selector)).BadRequest(t, message)
	}
}

// labelledBy are the objects for the label selectors below.
var labelledBy = map[string]map[string]any{
	"none":   {},
	"empty":  {"app": ""},
	"front":  {"app": "web", "tier": "front", "n": "5"},
	"back":   {"app": "web", "tier": "back", "n": "10"},
	"prefix": {"app.kubernetes.io/name": "web", "n": "0"},
	"case":   {"App": "WEB", "n": "many"},
}

var labelChoices = []chosen{
	{"", "back case empty front none prefix"},
	{"app=web", "back front"}, {"app==web", "back front"}, {"app = web", "back front"}, {"app=", "empty"}, {"app=none", ""}, {"App=WEB", "case"}, {"app=WEB", ""},
	{"app!=web", "case empty none prefix"}, {"app!=", "back case front none prefix"},
	{"app", "back empty front"}, {"!app", "case none prefix"}, {"app,!tier", "empty"}, {"tier,app", "back front"},
	{"app in (web)", "back front"}, {"app in (web,)", "back empty front"}, {"tier in (front,back)", "back front"}, {"tier in (front, x)", "front"},
	{"tier notin (front)", "back case empty none prefix"}, {"app notin (web,)", "case none prefix"}, {"tier notin (front,back),app", "empty"},
	{"n>5", "back"}, {"n>4", "back front"}, {"n<10", "front prefix"}, {"n>0,n<6", "front"}, {"n<1", "prefix"}, {"n<0", ""}, // "many" is not a number
	{"app.kubernetes.io/name=web", "prefix"}, {"app.kubernetes.io/name", "prefix"},
	{"app=web,tier=front", "front"}, {"app=web,tier=front,tier=back", ""}, {"app=web,app!=web", ""}, {" app=web , tier=back ", "back"},
}

var labelSelectors = []kit.Promise{
	{Statement: "label selectors select by equality, sets, existence and numbers", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "secrets")
		for name, labels := range labelledBy {
			c.Post(t, path, kit.With(kit.Secret(name), labels, "metadata", "labels")).Created(t)
		}
		choose(t, c, path, "labelSelector", labelChoices)
	}},
	{Statement: "label selectors work for custom resources in the same way", Proof: func(t *testing.T, c *kit.Cluster) {
		version := c.DefineWidgets(t, kit.AnySchema)
		for name, labels := range labelledBy {
			c.Post(t, c.Path(version, "widgets"), kit.With(kit.Widget(version, name), labels, "metadata", "labels")).Created(t)
		}
		choose(t, c, c.Path(version, "widgets"), "labelSelector", labelChoices)
	}},
	{Statement: "a label selector applies to an object's current labels", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "secrets")
		c.Post(t, path, kit.With(kit.Secret("a"), "1", "metadata", "labels", "v")).Created(t)
		choose(t, c, path, "labelSelector", []chosen{{"v=1", "a"}, {"v=2", ""}})
		c.Patch(t, kit.MergePatch, path+"/a", `{"metadata":{"labels":{"v":"2"}}}`).OK(t)
		choose(t, c, path, "labelSelector", []chosen{{"v=1", ""}, {"v=2", "a"}})
		c.Patch(t, kit.MergePatch, path+"/a", `{"metadata":{"labels":{"v":null}}}`).OK(t)
		choose(t, c, path, "labelSelector", []chosen{{"v", ""}, {"!v", "a"}})
	}},
	{Statement: "invalid label selectors are rejected with the position", Proof: func(t *testing.T, c *kit.Cluster) {
		unselectable(t, c, c.Path("v1", "secrets"), "labelSelector", map[string]string{
			"a in b": "unable to parse requirement: found 'b' expected: '('", "a in (b": "unable to parse requirement: found", ",": "found ',', expected:", "=": "found '='",
			"a~b": "unable to parse requirement: <nil>: Invalid value", "a>b": "for 'Gt', 'Lt' operators, the value must be an integer", "a=b=c": "found '=', expected: ',' or 'end of string'",
			"-a": "name part must consist of alphanumeric characters", "a=b!": "found '!', expected: ',' or 'end of string'", "a=b@": "a valid label must be an empty string or consist of alphanumeric characters",
			strings.Repeat("a", 64): "must be no more than 63 bytes", "a=" + strings.Repeat("b", 64): "must be no more than 63 bytes", "!a=b": "found '=', expected: ',' or 'end of string'",
		})
	}},
}

var fieldSelectors = []kit.Promise{
	{Statement: "every resource can be selected by name, and by namespace if it has one", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "secrets")
		for _, name := range []string{"a", "b", "c"} {
			c.Post(t, path, kit.Secret(name)).Created(t)
		}
		choose(t, c, path, "fieldSelector", []chosen{
			{"", "a b c"}, {"metadata.name=a", "a"}, {"metadata.name==b", "b"}, {"metadata.name!=a", "b c"}, {"metadata.name=none", ""}, {"metadata.name=", ""},
			{"metadata.name!=a,metadata.name!=b", "c"}, {"metadata.name=a,metadata.name=b", ""}, {"metadata.name=a,metadata.namespace=" + c.Namespace, "a"},
			{"metadata.namespace=" + c.Namespace, "a b c"}, {"metadata.namespace=default", ""}, {"metadata.namespace!=" + c.Namespace, ""},
		})
		choose(t, c, c.ClusterPath("v1", "secrets"), "fieldSelector", []chosen{
			{"metadata.namespace=" + c.Namespace, "a b c"}, {"metadata.namespace=" + c.Namespace + ",metadata.name=b", "b"}, {"metadata.namespace=" + c.Namespace + ",metadata.name!=b", "a c"},
		})
		choose(t, c, c.ClusterPath("v1", "namespaces"), "fieldSelector", []chosen{{"metadata.name=" + c.Namespace, c.Namespace}, {"metadata.name=" + c.Namespace + "-none", ""}})
	}},
	{Statement: "built-in resources can be selected by the fields that the API supports for them", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeDefaultServiceAccount(t)
		for _, name := range []string{"a", "b"} {
			c.Post(t, c.Path("v1", "pods"), kit.With(kit.Pod(name), "node-"+name, "spec", "nodeName")).Created(t)
		}
		c.Patch(t, kit.MergePatch, c.Path("v1", "pods", "b", "status"), `{"status":{"phase":"Running","podIP":"10.1.2.3"}}`).OK(t)
		choose(t, c, c.Path("v1", "pods"), "fieldSelector", []chosen{
			{"spec.nodeName=node-a", "a"}, {"spec.nodeName!=node-a", "b"}, {"status.phase=Running", "b"}, {"status.phase=Pending", "a"}, {"status.phase!=Running,spec.nodeName=node-a", "a"},
			{"spec.restartPolicy=Always", "a b"}, {"spec.restartPolicy=Never", ""}, {"spec.schedulerName=default-scheduler", "a b"}, {"spec.serviceAccountName=default", "a b"},
			{"status.podIP=10.1.2.3", "b"}, {"status.nominatedNodeName=", "a b"}, {"spec.hostNetwork=false", "a b"}, {"spec.hostNetwork=true", ""},
		})

		c.Post(t, c.Path("v1", "secrets"), kit.With(kit.Secret("typed"), "example.com/t", "type")).Created(t)
		c.Post(t, c.Path("v1", "secrets"), kit.Secret("opaque")).Created(t)
		choose(t, c, c.Path("v1", "secrets"), "fieldSelector", []chosen{{"type=Opaque", "opaque"}, {"type=example.com/t", "typed"}, {"type!=Opaque", "typed"}})

		event := kit.Manifest(`{metadata: {name: e}, involvedObject: {kind: Pod, name: a, namespace: %s}, reason: Tested, type: Normal, source: {component: test}}`, c.Namespace)
		c.Post(t, c.Path("v1", "events"), event).Created(t)
		choose(t, c, c.Path("v1", "events"), "fieldSelector", []chosen{
			{"involvedObject.name=a,reason=Tested", "e"}, {"involvedObject.kind=Pod,involvedObject.kind=Node", ""}, {"type=Normal,source=test,reason=Tested", "e"}, {"reason=Other", ""},
		})

		c.Post(t, c.ClusterPath("v1", "nodes"), kit.Manifest(`{metadata: {name: %s}, spec: {unschedulable: true}}`, c.Namespace)).Created(t)
		choose(t, c, c.ClusterPath("v1", "nodes"), "fieldSelector", []chosen{
			{"spec.unschedulable=true,metadata.name=" + c.Namespace, c.Namespace}, {"spec.unschedulable=false,metadata.name=" + c.Namespace, ""},
		})
		choose(t, c, c.ClusterPath("v1", "namespaces"), "fieldSelector", []chosen{
			{"status.phase=Active,metadata.name=" + c.Namespace, c.Namespace}, {"status.phase=Terminating,metadata.name=" + c.Namespace, ""},
		})
		c.Post(t, c.Path("batch/v1", "jobs"), kit.Manifest(`{metadata: {name: j}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}`)).Created(t)
		choose(t, c, c.Path("batch/v1", "jobs"), "fieldSelector", []chosen{{"status.successful=0", "j"}, {"status.successful=1", ""}})
		c.Post(t, c.Path("v1", "replicationcontrollers"), kit.Manifest(`{metadata: {name: r}, spec: {replicas: 0, selector: {a: b}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}`)).Created(t)
		choose(t, c, c.Path("v1", "replicationcontrollers"), "fieldSelector", []chosen{{"status.replicas=0", "r"}, {"status.replicas=1", ""}})
		c.Post(t, c.Path("v1", "services"), kit.With(kit.Service("s"), "None", "spec", "clusterIP")).Created(t)
		choose(t, c, c.Path("v1", "services"), "fieldSelector", []chosen{{"spec.clusterIP=None,spec.type=ClusterIP", "s"}, {"spec.type=NodePort", ""}})
	}},
	{Statement: "label and field selectors together select what both match", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "secrets")
		for _, name := range []string{"a", "b", "c"} {
			c.Post(t, path, kit.With(kit.With(kit.Secret(name), name, "metadata", "labels", "is"), "example.com/"+name, "type")).Created(t)
		}
		for query, want := range map[string]string{
			"labelSelector=is+in+(a,b)&fieldSelector=type!%3Dexample.com/a": "b", "labelSelector=is%3Da&fieldSelector=metadata.name%3Da": "a", "labelSelector=is%3Da&fieldSelector=metadata.name%3Db": "",
		} {
			if got := strings.Join(c.Get(t, path+"?"+query).OK(t).Names(t), " "); got != want {
				t.Errorf("%s finds %q instead of %q", query, got, want)
			}
		}
	}},
	{Statement: "an unsupported field is rejected", Proof: func(t *testing.T, c *kit.Cluster) {
		unselectable(t, c, c.Path("v1", "secrets"), "fieldSelector", map[string]string{
			"data.x=y": "field label not supported: data.x", "metadata.labels=a": "field label not supported: metadata.labels", "spec.nodeName=a": "field label not supported: spec.nodeName",
			"METADATA.NAME=a": "field label not supported: METADATA.NAME",
		})
		unselectable(t, c, c.Path("v1", "pods"), "fieldSelector", map[string]string{"spec.containers=a": "field label not supported: spec.containers"})
		unselectable(t, c, c.Path("apps/v1", "deployments"), "fieldSelector", map[string]string{"status.replicas=1": `"status.replicas" is not a known field selector: only "metadata.name", "metadata.namespace"`})
		version := c.DefineWidgets(t, kit.AnySchema)
		unselectable(t, c, c.Path(version, "widgets"), "fieldSelector", map[string]string{"spec.size=1": "field label not supported: spec.size"})
	}},
}
