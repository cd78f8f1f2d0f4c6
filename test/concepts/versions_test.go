package concepts

import (
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Sections "API groups and versioning" and "Kubernetes Deprecation Policy".
func TestVersions(t *testing.T) {
	log := auditLog(filepath.Join(t.TempDir(), "audit.log"))
	prove(t, []string{
		"--runtime-config=api/all=true", "--audit-log-path", string(log),
		"--audit-policy-file", writeFile(t, "policy.yaml", "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: None, users: ['system:apiserver']}, {level: Metadata}]"),
	}, slices.Concat(severalVersions, log.deprecations())...)
}

// inVersions are objects as one version writes them, and the other versions that have them.
var inVersions = map[string]struct {
	version, resource string
	object            string
	others            []string
}{
	// CPU comes last, since v1, which has it as a field of its own, puts it there.
	"HorizontalPodAutoscaler": {"autoscaling/v2", "horizontalpodautoscalers", `{metadata: {name: a, labels: {a: b}}, spec: {
		scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: a}, minReplicas: 2, maxReplicas: 7,
		metrics: [{type: Pods, pods: {metric: {name: requests, selector: {matchLabels: {a: b}}}, target: {type: AverageValue, averageValue: 10}}},
			{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 40}}}],
		behavior: {scaleDown: {stabilizationWindowSeconds: 60, policies: [{type: Percent, value: 10, periodSeconds: 60}]}}}}`, []string{"autoscaling/v1"}},
	"Event": {"events.k8s.io/v1", "events", `{metadata: {name: a}, eventTime: "2030-01-02T03:04:05.000006Z", reportingController: example.com/c,
		reportingInstance: c-1, action: Binding, reason: Scheduled, type: Normal, note: A note., regarding: {apiVersion: v1, kind: Pod, namespace: NAMESPACE, name: p},
		related: {kind: Node, name: node}, series: {count: 3, lastObservedTime: "2030-01-02T03:05:05.000006Z"}}`, []string{"v1"}},
	"MutatingAdmissionPolicy": {"admissionregistration.k8s.io/v1", "mutatingadmissionpolicies", `{metadata: {name: NAMESPACE}, spec: {reinvocationPolicy: IfNeeded,
		matchConstraints: {namespaceSelector: {matchLabels: {none: such}}, resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]},
		variables: [{name: v, expression: "'x'"}], matchConditions: [{name: m, expression: "true"}],
		mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{metadata: Object.metadata{labels: {'a': variables.v}}}"}}]}}`,
		[]string{"admissionregistration.k8s.io/v1beta1", "admissionregistration.k8s.io/v1alpha1"}},
	"ResourceClaim": {"resource.k8s.io/v1", "resourceclaims", `{metadata: {name: a}, spec: {devices: {
		requests: [{name: one, exactly: {deviceClassName: c.example.com, allocationMode: ExactCount, count: 2, selectors: [{cel: {expression: "true"}}]}},
			{name: any, firstAvailable: [{name: first, deviceClassName: c.example.com}, {name: second, deviceClassName: d.example.com, allocationMode: All}]}],
		constraints: [{requests: [one], matchAttribute: example.com/numa}],
		config: [{requests: [one], opaque: {driver: example.com, parameters: {a: b}}}]}}}`, []string{"resource.k8s.io/v1beta2", "resource.k8s.io/v1beta1"}},
	"ResourceSlice": {"resource.k8s.io/v1", "resourceslices", `{metadata: {name: NAMESPACE}, spec: {driver: example.com, nodeName: node, pool: {name: p, generation: 1, resourceSliceCount: 1},
		devices: [{name: d, attributes: {model: {string: x}}, capacity: {memory: {value: 10Gi}}}]}}`, []string{"resource.k8s.io/v1beta2", "resource.k8s.io/v1beta1"}},
	"DeviceClass": {"resource.k8s.io/v1beta1", "deviceclasses", `{metadata: {name: NAMESPACE}, spec: {selectors: [{cel: {expression: device.driver == 'example.com'}}],
		config: [{opaque: {driver: example.com, parameters: {a: b}}}]}}`, []string{"resource.k8s.io/v1", "resource.k8s.io/v1beta2"}},
	"VolumeAttributesClass": {"storage.k8s.io/v1", "volumeattributesclasses", `{metadata: {name: NAMESPACE}, driverName: example.com, parameters: {iops: "100"}}`,
		[]string{"storage.k8s.io/v1beta1"}},
	"LeaseCandidate": {"coordination.k8s.io/v1beta1", "leasecandidates", `{metadata: {name: a}, spec: {leaseName: l, binaryVersion: 1.36.0, emulationVersion: 1.36.0,
		strategy: OldestEmulationVersion, renewTime: "2030-01-02T03:04:05.000006Z", pingTime: "2030-01-02T03:04:05.000006Z"}}`, []string{"coordination.k8s.io/v1alpha2"}},
}

var severalVersions = []promise{
	{"an object can be read and written in each of its versions without loss", func(t *testing.T, c *cluster) {
		for kind, of := range inVersions {
			written := manifest("%s", strings.ReplaceAll(of.object, "NAMESPACE", c.namespace))
			place := c.path
			if name, _, _ := unstructured.NestedString(written, "metadata", "name"); name == c.namespace {
				place = c.global
			}
			created := c.post(t, place(of.version, of.resource), written).want(t, http.StatusCreated)
			path := place(of.version, of.resource, created.text(t, "metadata", "name"))
			before := c.get(t, path).want(t, http.StatusOK)
			for _, other := range of.others {
				otherPath := place(other, of.resource, created.text(t, "metadata", "name"))
				a := c.get(t, otherPath).want(t, http.StatusOK)
				if a.text(t, "apiVersion") != other || a.text(t, "kind") != kind || a.version(t) != before.version(t) || a.text(t, "metadata", "uid") != before.text(t, "metadata", "uid") {
					t.Errorf("%s in %s is\n%s", kind, other, a.Body)
				}
				// To write it back as it was read is to change nothing. (Of an Event that is written in its other group,
				// kube-apiserver forgets the managed fields.)
				c.put(t, otherPath, a.Body).want(t, http.StatusOK)
				after := c.get(t, path).want(t, http.StatusOK)
				sameBut(t, before, after)
				if kind != "Event" && after.version(t) != before.version(t) {
					t.Errorf("%s was changed by being written as %s:\n%s\ninstead of\n%s", kind, other, after.Body, before.Body)
				}
				// And one that is made in the other version is the same in the first.
				again := a.object(t)
				again["metadata"] = manifest("{generateName: again-, annotations: %s, labels: %s}", asYAML(a.value(t, "metadata", "annotations")), asYAML(a.value(t, "metadata", "labels")))
				name := c.post(t, place(other, of.resource), again).want(t, http.StatusCreated).text(t, "metadata", "name")
				sameBut(t, before, c.get(t, place(of.version, of.resource, name)).want(t, http.StatusOK))
			}
		}
	}},
	{"a watch and a list in one version have what is written in another", func(t *testing.T, c *cluster) {
		v1, v2 := c.path("autoscaling/v1", "horizontalpodautoscalers"), c.path("autoscaling/v2", "horizontalpodautoscalers")
		watch := c.watch(t, v1+"?watch=true&resourceVersion="+c.get(t, v1).version(t))
		scaler := func(percent int) map[string]any {
			return manifest(`{metadata: {name: a}, spec: {scaleTargetRef: {kind: Deployment, name: a, apiVersion: apps/v1}, maxReplicas: 3,
				metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: %d}}}]}}`, percent)
		}
		c.post(t, v2, scaler(40)).want(t, http.StatusCreated)
		c.put(t, v2+"/a", scaler(50)).want(t, http.StatusOK)
		for i, kind := range []string{"ADDED", "MODIFIED"} {
			e := watch.next(t)
			percent, _, _ := unstructured.NestedFieldNoCopy(e.Object, "spec", "targetCPUUtilizationPercentage")
			if e.Type != kind || e.Object["apiVersion"] != "autoscaling/v1" || percent != float64(40+10*i) {
				t.Errorf("the event is %v", e)
			}
		}
		list := c.get(t, v1).want(t, http.StatusOK)
		if list.text(t, "apiVersion") != "autoscaling/v1" || !slices.Equal(list.names(t), []string{"a"}) {
			t.Errorf("the list is\n%s", list.Body)
		}
		c.patch(t, mergePatch, v1+"/a", `{"spec":{"targetCPUUtilizationPercentage":60}}`).want(t, http.StatusOK)
		metrics, _ := c.get(t, v2+"/a").value(t, "spec", "metrics").([]any)
		if percent, _, _ := unstructured.NestedFieldNoCopy(object(metrics[0]), "resource", "target", "averageUtilization"); percent != float64(60) {
			t.Errorf("the metrics are %v", metrics)
		}
		c.delete(t, v1+"/a").want(t, http.StatusOK)
		c.get(t, v2+"/a").want(t, http.StatusNotFound)
	}},
	{"managed fields tell the version that each manager wrote in", func(t *testing.T, c *cluster) {
		for _, version := range []string{"autoscaling/v1", "autoscaling/v2"} {
			path := c.path(version, "horizontalpodautoscalers", "a") + "?fieldManager=by-" + strings.ReplaceAll(version, "/", "-")
			c.patch(t, applyPatch, path, manifest(`{apiVersion: %s, kind: HorizontalPodAutoscaler, metadata: {name: a},
				spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: a}}}`, version)).want(t, http.StatusOK, http.StatusCreated)
		}
		entries, _ := c.get(t, c.path("autoscaling/v1", "horizontalpodautoscalers", "a")).value(t, "metadata", "managedFields").([]any)
		versions := map[any]any{}
		for _, entry := range entries {
			versions[object(entry)["manager"]] = object(entry)["apiVersion"]
		}
		for _, version := range []string{"autoscaling/v1", "autoscaling/v2"} {
			if versions["by-"+strings.ReplaceAll(version, "/", "-")] != version {
				t.Errorf("the managers wrote in %v", versions)
			}
		}
	}},
	{"an object of another version than that of the path is refused", func(t *testing.T, c *cluster) {
		c.post(t, c.path("autoscaling/v2", "horizontalpodautoscalers"), manifest("{apiVersion: autoscaling/v1, kind: HorizontalPodAutoscaler, metadata: {name: a}}")).
			refused(t, http.StatusBadRequest, "BadRequest", "the API version in the data (autoscaling/v1) does not match the expected API version (autoscaling/v2)")
	}},
	{"a group names the version that is best used first", func(t *testing.T, c *cluster) {
		for group, want := range map[string][]string{
			"autoscaling":                  {"autoscaling/v2", "autoscaling/v1"},
			"admissionregistration.k8s.io": {"admissionregistration.k8s.io/v1", "admissionregistration.k8s.io/v1beta1", "admissionregistration.k8s.io/v1alpha1"},
			"resource.k8s.io":              {"resource.k8s.io/v1", "resource.k8s.io/v1beta2", "resource.k8s.io/v1beta1", "resource.k8s.io/v1alpha3"},
		} {
			a := c.get(t, "/apis/"+group).want(t, http.StatusOK)
			var versions []string
			for _, version := range a.value(t, "versions").([]any) {
				versions = append(versions, object(version)["groupVersion"].(string))
			}
			if !slices.Equal(versions, want) || a.text(t, "preferredVersion", "groupVersion") != want[0] {
				t.Errorf("%s has %v and prefers %s", group, versions, a.text(t, "preferredVersion", "groupVersion"))
			}
		}
	}},
	{"what a release removed is not served, whatever is switched on", func(t *testing.T, c *cluster) {
		for _, path := range []string{
			"/apis/flowcontrol.apiserver.k8s.io/v1beta3/flowschemas", "/apis/batch/v1beta1/cronjobs", "/apis/policy/v1beta1", "/apis/extensions/v1beta1",
			"/apis/storage.k8s.io/v1beta1/csistoragecapacities", "/apis/admissionregistration.k8s.io/v1beta1/validatingadmissionpolicies",
		} {
			c.get(t, path).want(t, http.StatusNotFound)
		}
	}},
}

// sameBut fails the test unless two answers hold the same object, under whatever name and made at whatever time.
func sameBut(t testing.TB, a, b answer) {
	t.Helper()
	var texts [2]string
	for i, each := range []answer{a, b} {
		o := each.object(t)
		for _, field := range []string{"name", "generateName", "uid", "resourceVersion", "creationTimestamp", "managedFields"} {
			unstructured.RemoveNestedField(o, "metadata", field)
		}
		texts[i] = string(asYAML(o))
	}
	if texts[0] != texts[1] {
		t.Errorf("%s holds\n%s\ninstead of\n%s", b.request, texts[1], texts[0])
	}
}
