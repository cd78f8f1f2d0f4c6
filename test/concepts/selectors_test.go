package concepts

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// chosen is what a selector finds, of the objects that the promise has made.
type chosen struct {
	selector string
	names    string // separated by spaces
}

// choose checks what label or field selectors find.
func (c *cluster) choose(t *testing.T, path, parameter string, all []chosen) {
	t.Helper()
	for _, want := range all {
		list := c.get(t, path+"?"+parameter+"="+url.QueryEscape(want.selector)).want(t, http.StatusOK)
		if got := strings.Join(list.names(t), " "); got != want.names {
			t.Errorf("%s %q finds %q instead of %q", parameter, want.selector, got, want.names)
		}
	}
}

// unselectable checks how selectors are refused.
func (c *cluster) unselectable(t *testing.T, path, parameter string, messages map[string]string) {
	t.Helper()
	for selector, message := range messages {
		c.get(t, path+"?"+parameter+"="+url.QueryEscape(selector)).refused(t, http.StatusBadRequest, "BadRequest", message)
	}
}

// labelledBy is what the label selectors below choose from.
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
	{"n>5", "back"}, {"n>4", "back front"}, {"n<10", "front prefix"}, {"n>0,n<6", "front"}, {"n<1", "prefix"}, {"n<0", ""}, // "many" is no number
	{"app.kubernetes.io/name=web", "prefix"}, {"app.kubernetes.io/name", "prefix"},
	{"app=web,tier=front", "front"}, {"app=web,tier=front,tier=back", ""}, {"app=web,app!=web", ""}, {" app=web , tier=back ", "back"},
}

var labelSelectors = []promise{
	{"label selectors choose by equality, by sets, by existence and by numbers", func(t *testing.T, c *cluster) {
		path := c.path("v1", "secrets")
		for name, labels := range labelledBy {
			c.post(t, path, with(secret(name), labels, "metadata", "labels")).want(t, http.StatusCreated)
		}
		c.choose(t, path, "labelSelector", labelChoices)
	}},
	{"label selectors choose among custom resources in the same way", func(t *testing.T, c *cluster) {
		version := c.widgets(t, anySchema)
		for name, labels := range labelledBy {
			c.post(t, c.path(version, "widgets"), with(widget(version, name), labels, "metadata", "labels")).want(t, http.StatusCreated)
		}
		c.choose(t, c.path(version, "widgets"), "labelSelector", labelChoices)
	}},
	{"a label selector follows the labels that an object has now", func(t *testing.T, c *cluster) {
		path := c.path("v1", "secrets")
		c.post(t, path, with(secret("a"), "1", "metadata", "labels", "v")).want(t, http.StatusCreated)
		c.choose(t, path, "labelSelector", []chosen{{"v=1", "a"}, {"v=2", ""}})
		c.patch(t, mergePatch, path+"/a", `{"metadata":{"labels":{"v":"2"}}}`).want(t, http.StatusOK)
		c.choose(t, path, "labelSelector", []chosen{{"v=1", ""}, {"v=2", "a"}})
		c.patch(t, mergePatch, path+"/a", `{"metadata":{"labels":{"v":null}}}`).want(t, http.StatusOK)
		c.choose(t, path, "labelSelector", []chosen{{"v", ""}, {"!v", "a"}})
	}},
	{"what is no label selector is refused, and the message says where", func(t *testing.T, c *cluster) {
		c.unselectable(t, c.path("v1", "secrets"), "labelSelector", map[string]string{
			"a in b": "unable to parse requirement: found 'b' expected: '('", "a in (b": "unable to parse requirement: found", ",": "found ',', expected:", "=": "found '='",
			"a~b": "unable to parse requirement: <nil>: Invalid value", "a>b": "for 'Gt', 'Lt' operators, the value must be an integer", "a=b=c": "found '=', expected: ',' or 'end of string'",
			"-a": "name part must consist of alphanumeric characters", "a=b!": "found '!', expected: ',' or 'end of string'", "a=b@": "a valid label must be an empty string or consist of alphanumeric characters",
			strings.Repeat("a", 64): "must be no more than 63 bytes", "a=" + strings.Repeat("b", 64): "must be no more than 63 bytes", "!a=b": "found '=', expected: ',' or 'end of string'",
		})
	}},
}

var fieldSelectors = []promise{
	{"every resource can be selected by name, and by namespace if it has one", func(t *testing.T, c *cluster) {
		path := c.path("v1", "secrets")
		for _, name := range []string{"a", "b", "c"} {
			c.post(t, path, secret(name)).want(t, http.StatusCreated)
		}
		c.choose(t, path, "fieldSelector", []chosen{
			{"", "a b c"}, {"metadata.name=a", "a"}, {"metadata.name==b", "b"}, {"metadata.name!=a", "b c"}, {"metadata.name=none", ""}, {"metadata.name=", ""},
			{"metadata.name!=a,metadata.name!=b", "c"}, {"metadata.name=a,metadata.name=b", ""}, {"metadata.name=a,metadata.namespace=" + c.namespace, "a"},
			{"metadata.namespace=" + c.namespace, "a b c"}, {"metadata.namespace=default", ""}, {"metadata.namespace!=" + c.namespace, ""},
		})
		c.choose(t, c.global("v1", "secrets"), "fieldSelector", []chosen{
			{"metadata.namespace=" + c.namespace, "a b c"}, {"metadata.namespace=" + c.namespace + ",metadata.name=b", "b"}, {"metadata.namespace=" + c.namespace + ",metadata.name!=b", "a c"},
		})
		c.choose(t, c.global("v1", "namespaces"), "fieldSelector", []chosen{{"metadata.name=" + c.namespace, c.namespace}, {"metadata.name=" + c.namespace + "-none", ""}})
	}},
	{"built-in resources can be selected by the fields that the API names for them", func(t *testing.T, c *cluster) {
		c.serviceAccount(t)
		for _, name := range []string{"a", "b"} {
			c.post(t, c.path("v1", "pods"), with(pod(name), "node-"+name, "spec", "nodeName")).want(t, http.StatusCreated)
		}
		c.patch(t, mergePatch, c.path("v1", "pods", "b", "status"), `{"status":{"phase":"Running","podIP":"10.1.2.3"}}`).want(t, http.StatusOK)
		c.choose(t, c.path("v1", "pods"), "fieldSelector", []chosen{
			{"spec.nodeName=node-a", "a"}, {"spec.nodeName!=node-a", "b"}, {"status.phase=Running", "b"}, {"status.phase=Pending", "a"}, {"status.phase!=Running,spec.nodeName=node-a", "a"},
			{"spec.restartPolicy=Always", "a b"}, {"spec.restartPolicy=Never", ""}, {"spec.schedulerName=default-scheduler", "a b"}, {"spec.serviceAccountName=default", "a b"},
			{"status.podIP=10.1.2.3", "b"}, {"status.nominatedNodeName=", "a b"}, {"spec.hostNetwork=false", "a b"}, {"spec.hostNetwork=true", ""},
		})

		c.post(t, c.path("v1", "secrets"), with(secret("typed"), "example.com/t", "type")).want(t, http.StatusCreated)
		c.post(t, c.path("v1", "secrets"), secret("opaque")).want(t, http.StatusCreated)
		c.choose(t, c.path("v1", "secrets"), "fieldSelector", []chosen{{"type=Opaque", "opaque"}, {"type=example.com/t", "typed"}, {"type!=Opaque", "typed"}})

		event := manifest(`{metadata: {name: e}, involvedObject: {kind: Pod, name: a, namespace: %s}, reason: Tested, type: Normal, source: {component: test}}`, c.namespace)
		c.post(t, c.path("v1", "events"), event).want(t, http.StatusCreated)
		c.choose(t, c.path("v1", "events"), "fieldSelector", []chosen{
			{"involvedObject.name=a,reason=Tested", "e"}, {"involvedObject.kind=Pod,involvedObject.kind=Node", ""}, {"type=Normal,source=test,reason=Tested", "e"}, {"reason=Other", ""},
		})

		c.post(t, c.global("v1", "nodes"), manifest(`{metadata: {name: %s}, spec: {unschedulable: true}}`, c.namespace)).want(t, http.StatusCreated)
		c.choose(t, c.global("v1", "nodes"), "fieldSelector", []chosen{
			{"spec.unschedulable=true,metadata.name=" + c.namespace, c.namespace}, {"spec.unschedulable=false,metadata.name=" + c.namespace, ""},
		})
		c.choose(t, c.global("v1", "namespaces"), "fieldSelector", []chosen{
			{"status.phase=Active,metadata.name=" + c.namespace, c.namespace}, {"status.phase=Terminating,metadata.name=" + c.namespace, ""},
		})
		c.post(t, c.path("batch/v1", "jobs"), manifest(`{metadata: {name: j}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}`)).want(t, http.StatusCreated)
		c.choose(t, c.path("batch/v1", "jobs"), "fieldSelector", []chosen{{"status.successful=0", "j"}, {"status.successful=1", ""}})
		c.post(t, c.path("v1", "replicationcontrollers"), manifest(`{metadata: {name: r}, spec: {replicas: 0, selector: {a: b}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}`)).want(t, http.StatusCreated)
		c.choose(t, c.path("v1", "replicationcontrollers"), "fieldSelector", []chosen{{"status.replicas=0", "r"}, {"status.replicas=1", ""}})
		c.post(t, c.path("v1", "services"), with(service("s"), "None", "spec", "clusterIP")).want(t, http.StatusCreated)
		c.choose(t, c.path("v1", "services"), "fieldSelector", []chosen{{"spec.clusterIP=None,spec.type=ClusterIP", "s"}, {"spec.type=NodePort", ""}})
	}},
	{"label and field selectors together choose what both do", func(t *testing.T, c *cluster) {
		path := c.path("v1", "secrets")
		for _, name := range []string{"a", "b", "c"} {
			c.post(t, path, with(with(secret(name), name, "metadata", "labels", "is"), "example.com/"+name, "type")).want(t, http.StatusCreated)
		}
		for query, want := range map[string]string{
			"labelSelector=is+in+(a,b)&fieldSelector=type!%3Dexample.com/a": "b", "labelSelector=is%3Da&fieldSelector=metadata.name%3Da": "a", "labelSelector=is%3Da&fieldSelector=metadata.name%3Db": "",
		} {
			if got := strings.Join(c.get(t, path+"?"+query).want(t, http.StatusOK).names(t), " "); got != want {
				t.Errorf("%s finds %q instead of %q", query, got, want)
			}
		}
	}},
	{"a field that a resource can't be selected by is refused", func(t *testing.T, c *cluster) {
		c.unselectable(t, c.path("v1", "secrets"), "fieldSelector", map[string]string{
			"data.x=y": "field label not supported: data.x", "metadata.labels=a": "field label not supported: metadata.labels", "spec.nodeName=a": "field label not supported: spec.nodeName",
			"METADATA.NAME=a": "field label not supported: METADATA.NAME",
		})
		c.unselectable(t, c.path("v1", "pods"), "fieldSelector", map[string]string{"spec.containers=a": "field label not supported: spec.containers"})
		c.unselectable(t, c.path("apps/v1", "deployments"), "fieldSelector", map[string]string{"status.replicas=1": `"status.replicas" is not a known field selector: only "metadata.name", "metadata.namespace"`})
		version := c.widgets(t, anySchema)
		c.unselectable(t, c.path(version, "widgets"), "fieldSelector", map[string]string{"spec.size=1": "field label not supported: spec.size"})
	}},
	{"what is no field selector is refused", func(t *testing.T, c *cluster) {
		c.unselectable(t, c.path("v1", "secrets"), "fieldSelector", map[string]string{
			"metadata.name": "invalid selector: 'metadata.name'; can't understand 'metadata.name'", "metadata.name in (a)": "can't understand", "a": "can't understand 'a'",
			`metadata.name=\a`: "invalid field selector", `metadata.name=a\`: "invalid field selector",
		})
	}},
}
