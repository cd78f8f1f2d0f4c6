// Package versions tests sqube against the documentation of API versions: deprecation, enabling and disabling, stored versions.
package versions

import (
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sqube/sqube/test/concepts/kit"
)

func TestMain(m *testing.M) { kit.Main(m) }

// Sections "API groups and versioning" and "Kubernetes Deprecation Policy".
func TestVersions(t *testing.T) {
	log := kit.AuditLog(filepath.Join(t.TempDir(), "audit.log"))
	kit.Prove(t, []string{
		"--runtime-config=api/all=true", "--audit-log-path", string(log),
		"--audit-policy-file", kit.WriteFile(t, "policy.yaml", "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: None, users: ['system:apiserver']}, {level: Metadata}]"),
	}, slices.Concat(severalVersions, deprecations(log))...)
}

// inVersions are objects in one version, and the other versions that have them.
var inVersions = map[string]struct {
	version, resource string
	object            string
	others            []string
}{
	// CPU comes last, since v1, in which it is a separate field, puts it there.
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
	"DeviceTaintRule": {"resource.k8s.io/v1", "devicetaintrules", `{metadata: {name: NAMESPACE}, spec: {deviceSelector: {driver: example.com, pool: p, device: d},
		taint: {key: example.com/k, value: v, effect: NoSchedule, timeAdded: "2030-01-02T03:04:05Z"}}}`, []string{"resource.k8s.io/v1beta2", "resource.k8s.io/v1alpha3"}},
	"LeaseCandidate": {"coordination.k8s.io/v1beta1", "leasecandidates", `{metadata: {name: a}, spec: {leaseName: l, binaryVersion: 1.36.0, emulationVersion: 1.36.0,
		strategy: OldestEmulationVersion, renewTime: "2030-01-02T03:04:05.000006Z", pingTime: "2030-01-02T03:04:05.000006Z"}}`, []string{"coordination.k8s.io/v1alpha2"}},
}

var severalVersions = []kit.Promise{
	{Statement: "an object can be read and written in each of its versions without loss", Proof: func(t *testing.T, c *kit.Cluster) {
		for kind, of := range inVersions {
			written := kit.Manifest("%s", strings.ReplaceAll(of.object, "NAMESPACE", c.Namespace))
			place := c.Path
			if name, _, _ := unstructured.NestedString(written, "metadata", "name"); name == c.Namespace {
				place = c.ClusterPath
			}
			created := c.Post(t, place(of.version, of.resource), written).Created(t)
			path := place(of.version, of.resource, created.Text(t, "metadata", "name"))
			before := c.Get(t, path).OK(t)
			for _, other := range of.others {
				otherPath := place(other, of.resource, created.Text(t, "metadata", "name"))
				a := c.Get(t, otherPath).OK(t)
				if a.Text(t, "apiVersion") != other || a.Text(t, "kind") != kind || a.ResourceVersion(t) != before.ResourceVersion(t) || a.Text(t, "metadata", "uid") != before.Text(t, "metadata", "uid") {
					t.Errorf("%s in %s is\n%s", kind, other, a.Body)
				}
				// Writing it back as read changes nothing. (When an Event is written in its other group, kube-apiserver drops
				// the managed fields.)
				c.Put(t, otherPath, a.Body).OK(t)
				after := c.Get(t, path).OK(t)
				sameBut(t, before, after)
				if kind != "Event" && after.ResourceVersion(t) != before.ResourceVersion(t) {
					t.Errorf("writing %s as %s changed it:\n%s\ninstead of\n%s", kind, other, after.Body, before.Body)
				}
				// An object created in the other version is the same in the first.
				again := a.Object(t)
				again["metadata"] = kit.Manifest("{generateName: again-, annotations: %s, labels: %s}", kit.JSON(a.Value(t, "metadata", "annotations")), kit.JSON(a.Value(t, "metadata", "labels")))
				name := c.Post(t, place(other, of.resource), again).Created(t).Text(t, "metadata", "name")
				sameBut(t, before, c.Get(t, place(of.version, of.resource, name)).OK(t))
			}
		}
	}},
	{Statement: "a watch and a list in one version include objects written in another", Proof: func(t *testing.T, c *kit.Cluster) {
		v1, v2 := c.Path("autoscaling/v1", "horizontalpodautoscalers"), c.Path("autoscaling/v2", "horizontalpodautoscalers")
		watch := c.Watch(t, v1+"?watch=true&resourceVersion="+c.Get(t, v1).ResourceVersion(t))
		scaler := func(percent int) map[string]any {
			return kit.Manifest(`{metadata: {name: a}, spec: {scaleTargetRef: {kind: Deployment, name: a, apiVersion: apps/v1}, maxReplicas: 3,
				metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: %d}}}]}}`, percent)
		}
		c.Post(t, v2, scaler(40)).Created(t)
		c.Put(t, v2+"/a", scaler(50)).OK(t)
		for i, kind := range []string{"ADDED", "MODIFIED"} {
			e := watch.Next(t)
			percent, _, _ := unstructured.NestedFieldNoCopy(e.Object, "spec", "targetCPUUtilizationPercentage")
			if e.Type != kind || e.Object["apiVersion"] != "autoscaling/v1" || percent != float64(40+10*i) {
				t.Errorf("the event is %v", e)
			}
		}
		list := c.Get(t, v1).OK(t)
		if list.Text(t, "apiVersion") != "autoscaling/v1" || !slices.Equal(list.Names(t), []string{"a"}) {
			t.Errorf("the list is\n%s", list.Body)
		}
		c.Patch(t, kit.MergePatch, v1+"/a", `{"spec":{"targetCPUUtilizationPercentage":60}}`).OK(t)
		metrics, _ := c.Get(t, v2+"/a").Value(t, "spec", "metrics").([]any)
		if percent, _, _ := unstructured.NestedFieldNoCopy(kit.ObjectOf(metrics[0]), "resource", "target", "averageUtilization"); percent != float64(60) {
			t.Errorf("the metrics are %v", metrics)
		}
		c.Delete(t, v1+"/a").OK(t)
		c.Get(t, v2+"/a").Want(t, http.StatusNotFound)
	}},
	{Statement: "managed fields have the version that each manager wrote in", Proof: func(t *testing.T, c *kit.Cluster) {
		for _, version := range []string{"autoscaling/v1", "autoscaling/v2"} {
			path := c.Path(version, "horizontalpodautoscalers", "a") + "?fieldManager=by-" + strings.ReplaceAll(version, "/", "-")
			c.Patch(t, kit.ApplyPatch, path, kit.Manifest(`{apiVersion: %s, kind: HorizontalPodAutoscaler, metadata: {name: a},
				spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: a}}}`, version)).Want(t, http.StatusOK, http.StatusCreated)
		}
		entries, _ := c.Get(t, c.Path("autoscaling/v1", "horizontalpodautoscalers", "a")).Value(t, "metadata", "managedFields").([]any)
		versions := map[any]any{}
		for _, entry := range entries {
			versions[kit.ObjectOf(entry)["manager"]] = kit.ObjectOf(entry)["apiVersion"]
		}
		for _, version := range []string{"autoscaling/v1", "autoscaling/v2"} {
			if versions["by-"+strings.ReplaceAll(version, "/", "-")] != version {
				t.Errorf("the managers wrote in %v", versions)
			}
		}
	}},
	{Statement: "an object with a version other than the path's is rejected", Proof: func(t *testing.T, c *kit.Cluster) {
		c.Post(t, c.Path("autoscaling/v2", "horizontalpodautoscalers"), kit.Manifest("{apiVersion: autoscaling/v1, kind: HorizontalPodAutoscaler, metadata: {name: a}}")).
			BadRequest(t, "the API version in the data (autoscaling/v1) does not match the expected API version (autoscaling/v2)")
	}},
	{Statement: "a group has a preferred version", Proof: func(t *testing.T, c *kit.Cluster) {
		for group, want := range map[string][]string{
			"autoscaling":                  {"autoscaling/v2", "autoscaling/v1"},
			"admissionregistration.k8s.io": {"admissionregistration.k8s.io/v1", "admissionregistration.k8s.io/v1beta1", "admissionregistration.k8s.io/v1alpha1"},
			"resource.k8s.io":              {"resource.k8s.io/v1", "resource.k8s.io/v1beta2", "resource.k8s.io/v1beta1", "resource.k8s.io/v1alpha3"},
		} {
			a := c.Get(t, "/apis/"+group).OK(t)
			var versions []string
			for _, version := range a.Value(t, "versions").([]any) {
				versions = append(versions, kit.ObjectOf(version)["groupVersion"].(string))
			}
			if !slices.Equal(versions, want) || a.Text(t, "preferredVersion", "groupVersion") != want[0] {
				t.Errorf("%s has %v and prefers %s", group, versions, a.Text(t, "preferredVersion", "groupVersion"))
			}
		}
	}},
	{Statement: "removed versions are not served, even if everything is enabled", Proof: func(t *testing.T, c *kit.Cluster) {
		for _, path := range []string{
			"/apis/flowcontrol.apiserver.k8s.io/v1beta3/flowschemas", "/apis/batch/v1beta1/cronjobs", "/apis/policy/v1beta1", "/apis/extensions/v1beta1",
			"/apis/storage.k8s.io/v1beta1/csistoragecapacities", "/apis/admissionregistration.k8s.io/v1beta1/validatingadmissionpolicies",
		} {
			c.Get(t, path).Want(t, http.StatusNotFound)
		}
	}},
}

// sameBut fails the test unless two responses have the same object, except for its name and creation time.
func sameBut(t testing.TB, a, b kit.Answer) {
	t.Helper()
	var texts [2]string
	for i, each := range []kit.Answer{a, b} {
		o := each.Object(t)
		for _, field := range []string{"name", "generateName", "uid", "resourceVersion", "creationTimestamp", "managedFields"} {
			unstructured.RemoveNestedField(o, "metadata", field)
		}
		texts[i] = string(kit.JSON(o))
	}
	if texts[0] != texts[1] {
		t.Errorf("%s has\n%s\ninstead of\n%s", b.Request, texts[1], texts[0])
	}
}
