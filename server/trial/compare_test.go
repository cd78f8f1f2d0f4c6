package trial

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/sqube/sqube/server/changes"
)

// kinds are those that the tests use, by resource.
type kinds map[schema.GroupResource]string

var someKinds = kinds{
	pods: "Pod", replicaSets: "ReplicaSet", deployments: "Deployment", jobs: "Job", cronJobs: "CronJob", nodes: "Node", namespaces: "Namespace",
	{Resource: "configmaps"}: "ConfigMap", {Resource: "secrets"}: "Secret", endpointSlices: "EndpointSlice", autoscalers: "HorizontalPodAutoscaler",
	{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicies"}: "ValidatingAdmissionPolicy",
	{Group: "example.com", Resource: "widgets"}:                                      "Widget",
}

func (k kinds) ResourceOf(of schema.GroupKind) (schema.GroupResource, bool, bool) {
	for resource, kind := range k {
		if resource.Group == of.Group && kind == of.Kind {
			return resource, resource != nodes && resource != namespaces, true
		}
	}
	return schema.GroupResource{}, false, false
}

func (k kinds) KindOf(of schema.GroupResource) (schema.GroupVersionKind, bool) {
	kind, ok := k[of]
	return schema.GroupVersionKind{Group: of.Group, Version: "v1", Kind: kind}, ok
}

func (kinds) Definition(of schema.GroupResource) (string, bool) {
	return of.String(), of.Group == "example.com"
}

func (kinds) Hidden(_ context.Context, of schema.GroupResource) *changes.Hidden {
	return changes.HiddenInBuiltIn(of)
}

var begin = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// copied is an outcome that a test makes.
type copied struct {
	*outcome
	revision int64
	seen     map[*life][]map[string]any
}

func newCopy() *copied {
	c := &copied{seen: map[*life][]map[string]any{}}
	c.outcome = &outcome{begin: begin, end: begin.Add(10 * time.Minute), user: "jane", served: someKinds, lives: map[key]*life{}}
	c.versions = func(l *life, yield func(*write, map[string]any)) error {
		for i := range l.writes {
			text, _ := json.Marshal(c.seen[l][i])
			yield(&l.writes[i], decode(text))
		}
		return nil
	}
	return c
}

// write writes a version of an object after some time; "" deletes it.
func (c *copied) write(after time.Duration, by string, resource schema.GroupResource, name, before, now string) *life {
	k := key{GroupResource: resource, name: name}
	if namespace, rest, ok := strings.Cut(name, "/"); ok {
		k.namespace, k.name = namespace, rest
	}
	c.revision++
	w := write{at: begin.Add(after), revision: c.revision, by: by, user: by == c.user, done: "update"}
	l := c.lives[k]
	if l == nil {
		l = &life{key: k, existed: before != "", before: object(before), after: object(before), uid: types.UID("u-" + name)}
		c.lives[k] = l
	}
	switch {
	case now == "":
		w.done = "delete"
	case !l.exists && (len(l.writes) > 0 || !l.existed):
		w.done = "create"
		l.removed = nil
		if len(l.writes) > 0 {
			l.removed = l.after
		}
	}
	if l.exists = now != ""; l.exists {
		l.after = object(now)
	}
	l.writes = append(l.writes, w)
	c.seen[l] = append(c.seen[l], decode(object(now)))
	if resource == eventsResource {
		c.events = append(c.events, l)
		delete(c.lives, k)
	}
	return l
}

func object(text string) []byte {
	if text == "" {
		return nil
	}
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		panic(err)
	}
	return raw
}

func result(t *testing.T, trial, twin *copied) *Result {
	t.Helper()
	r, err := compare(t.Context(), trial.outcome, twin.outcome, &Answers{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// outline writes trees as lines.
func outline(objects []*Object, indent string) (lines []string) {
	for _, o := range objects {
		line := fmt.Sprintf("%s%s %s %s", indent, o.Operation, o.Kind, o.Name)
		if o.Alike > 0 {
			line += fmt.Sprintf(" +%d", o.Alike)
		}
		if o.State != "" {
			line += " (" + o.State + ")"
		}
		lines = append(lines, line)
		for _, d := range o.Diff {
			lines = append(lines, indent+"  "+d.Path+" "+d.From+"→"+d.To)
		}
		lines = append(lines, outline(o.Caused, indent+"  ")...)
	}
	return lines
}

func expect(t *testing.T, objects []*Object, want string) {
	t.Helper()
	var wanted []string
	for line := range strings.Lines(want) {
		if line = strings.TrimRight(strings.TrimPrefix(line, "\t\t"), "\n"); strings.TrimSpace(line) != "" {
			wanted = append(wanted, line)
		}
	}
	if got := outline(objects, ""); !slices.Equal(got, wanted) {
		t.Errorf("the tree is\n%s\nand not\n%s", strings.Join(got, "\n"), strings.Join(wanted, "\n"))
	}
}

const (
	deploymentOf = `{apiVersion: apps/v1, kind: Deployment, spec: {replicas: %d}, status: {replicas: %d, updatedReplicas: %d, readyReplicas: %d}}`
	replicaSetOf = `{apiVersion: apps/v1, kind: ReplicaSet, metadata: {ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, controller: true, uid: u1}]}, spec: {replicas: %d}, status: {replicas: %d, readyReplicas: %d}}`
	ofSet        = `metadata: {ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web-1, controller: true, uid: u2}]}`
	running      = `{apiVersion: v1, kind: Pod, ` + ofSet + `, spec: {nodeName: n1}, status: {phase: Running, conditions: [{type: Ready, status: "True"}]}}`
	pending      = `{apiVersion: v1, kind: Pod, ` + ofSet + `, status: {phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: Unschedulable, message: "0/3 nodes are available"}]}}`
)

// A rollout is a tree in which alike Pods are one line, and a time line; what does not fit is pending, and why it is not at rest.
func TestRollout(t *testing.T) {
	c := newCopy()
	c.write(0, "jane", deployments, "shop/web", "", fmt.Sprintf(deploymentOf, 3, 0, 0, 0))
	c.write(0, "deployment-controller", replicaSets, "shop/web-1", "", fmt.Sprintf(replicaSetOf, 3, 0, 0))
	for i, name := range []string{"shop/web-1-bcdfg", "shop/web-1-hjklm", "shop/web-1-npqrs"} {
		c.write(0, "replicaset-controller", pods, name, "", pending)
		if i < 2 {
			c.write(3*time.Second, "kubelet", pods, name, "", running)
		}
	}
	c.write(3*time.Second, "deployment-controller", deployments, "shop/web", "", fmt.Sprintf(deploymentOf, 3, 3, 3, 2))
	c.write(3*time.Second, "replicaset-controller", replicaSets, "shop/web-1", "", fmt.Sprintf(replicaSetOf, 3, 3, 2))
	r := result(t, c, newCopy())
	expect(t, r.Tree, `
		created Deployment web (2 of 3 ready)
		  created ReplicaSet web-1 (2 of 3 ready)
		    created Pod web-1-bcdfg +1
		    created Pod web-1-npqrs (Pending)`)
	if r.Verdict != NotAtRest || !strings.Contains(r.Reasons[0], "0/3 nodes are available") {
		t.Errorf("the verdict is %s: %q", r.Verdict, r.Reasons)
	}
	if len(r.Pending) != 1 || r.Pending[0].Pod.Name != "web-1-npqrs" {
		t.Errorf("pending are %v", r.Pending)
	}
	if n := len(r.Timeline); n != 2 || r.Timeline[1].At.String() != "0:03" || r.Timeline[1].Text != "2 of 3 ready" {
		t.Errorf("the time line is %v", r.Timeline)
	}
}

// What happens without the change as well is no effect of it, whatever names and times it has; what only happens without it is one.
func TestTwin(t *testing.T) {
	const ofJob = `{apiVersion: v1, kind: Pod, metadata: {ownerReferences: [{apiVersion: batch/v1, kind: Job, name: %s, uid: %s, controller: true}]}, status: {phase: Succeeded}}`
	const job = `{apiVersion: batch/v1, kind: Job, metadata: {uid: %s, labels: {controller-uid: %[1]s}, ownerReferences: [{apiVersion: batch/v1, kind: CronJob, name: tick, controller: true}]}, status: {conditions: [{type: Complete, status: "True"}]}}`
	const config = `{apiVersion: v1, kind: ConfigMap, metadata: {annotations: {seen: "%s"}}, data: {mine: "%s", theirs: "%s"}}`
	c, twin := newCopy(), newCopy()
	for i, of := range []*copied{c, twin} {
		uid := fmt.Sprint("u", i)
		of.write(time.Minute, "cronjob-controller", jobs, "shop/tick-1001", "", fmt.Sprintf(job, uid))
		of.write(time.Minute, "job-controller", pods, "shop/tick-1001-"+[]string{"bcdfg", "hjklm"}[i], "", fmt.Sprintf(ofJob, "tick-1001", uid))
		seen := begin.Add(time.Duration(i) * time.Second).Format(time.RFC3339)
		of.write(time.Minute, "robot", schema.GroupResource{Resource: "configmaps"}, "shop/settings",
			fmt.Sprintf(config, "2026-01-01T00:00:00Z", "1", "1"), fmt.Sprintf(config, seen, []string{"2", "1"}[i], "2"))
	}
	c.write(0, "jane", cronJobs, "shop/tick", `{apiVersion: batch/v1, kind: CronJob, spec: {suspend: false}}`, `{apiVersion: batch/v1, kind: CronJob, spec: {suspend: true}}`)
	twin.write(5*time.Minute, "cronjob-controller", jobs, "shop/tick-1006", "", fmt.Sprintf(job, "u3"))
	twin.write(5*time.Minute, "job-controller", pods, "shop/tick-1006-bcdfg", "", fmt.Sprintf(ofJob, "tick-1006", "u3"))
	r := result(t, c, twin)
	expect(t, r.Tree, `
		changed CronJob tick (suspended)
		  .spec.suspend false→true
		  not created Job tick-1006
		    not created Pod tick-1006-bcdfg`)
	expect(t, r.Elsewhere, `
		changed ConfigMap settings
		  .data.mine "1"→"2"`)
	if r.Verdict != AtRest {
		t.Errorf("the verdict is %s: %q", r.Verdict, r.Reasons)
	}
}

// A CronJob that runs every minute is at rest, and so is a controller that deletes a Job twice, since it has not heard of the first time.
func TestSchedule(t *testing.T) {
	const tick = `{apiVersion: batch/v1, kind: CronJob, metadata: {uid: u1}, spec: {suspend: false}, status: {lastScheduleTime: "%v"}}`
	c := newCopy()
	c.write(0, "jane", cronJobs, "shop/tick", "", fmt.Sprintf(tick, ""))
	for minute := range 10 {
		for second := range 3 {
			c.write(time.Duration(minute)*time.Minute+time.Duration(second)*time.Second, "cronjob-controller", cronJobs, "shop/tick",
				fmt.Sprintf(tick, minute), fmt.Sprintf(tick, minute+second))
		}
	}
	c.write(time.Minute, "cronjob-controller", eventsResource, "shop/tick.1", "", `{type: Warning, reason: FailedDelete, count: 1,
		message: 'Deleted job: jobs.batch "tick-1001" not found', involvedObject: {apiVersion: batch/v1, kind: CronJob, namespace: shop, name: tick}}`)
	if r := result(t, c, newCopy()); r.Verdict != AtRest || len(r.Held) > 0 || len(r.Fights) > 0 {
		t.Errorf("the verdict is %s: %q, held %v, fights %v", r.Verdict, r.Reasons, r.Held, r.Fights)
	}
}

// A policy has below it what it stopped.
func TestHeld(t *testing.T) {
	const job = `{apiVersion: batch/v1, kind: Job, metadata: {ownerReferences: [{apiVersion: batch/v1, kind: CronJob, name: tick, controller: true}]}, status: {%s}}`
	c, twin := newCopy(), newCopy()
	c.write(0, "jane", schema.GroupResource{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicies"}, "owners", "", `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy}`)
	c.write(time.Minute, "cronjob-controller", jobs, "shop/tick-1001", "", fmt.Sprintf(job, ""))
	twin.write(time.Minute, "cronjob-controller", jobs, "shop/tick-1001", "", fmt.Sprintf(job, `conditions: [{type: Complete, status: "True"}]`))
	for i, prefix := range []string{"", combined} {
		c.write(time.Minute, "job-controller", eventsResource, fmt.Sprintf("shop/tick-1001.%d", i), "", `{type: Warning, reason: FailedCreate, count: 3,
message: "`+prefix+`Error creating: pods \"tick-1001-hjklm\" is forbidden: ValidatingAdmissionPolicy 'owners' with binding 'owners' denied request: no owner",
involvedObject: {apiVersion: batch/v1, kind: Job, namespace: shop, name: tick-1001}}`)
	}
	r := result(t, c, twin)
	expect(t, r.Tree, `
		created ValidatingAdmissionPolicy owners
		  changed Job tick-1001 (0 of 1 succeeded)`)
	if len(r.Held) != 1 || r.Held[0].Kind != "policy" || r.Held[0].By != "owners" || r.Held[0].Times != 6 {
		t.Errorf("held are %+v", r.Held)
	}
	if len(r.Reasons) != 1 || r.Reasons[0] != "Job shop/tick-1001 was stopped by policy owners: no owner" {
		t.Errorf("the reasons are %q", r.Reasons)
	}
}

// Two that change a field to and fro are told, and so is one that never ends; what comes to rest is not.
func TestFights(t *testing.T) {
	const widget = `{apiVersion: example.com/v1, kind: Widget, spec: {size: %d}}`
	widgets := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	c := newCopy()
	for i := range 8 {
		c.write(time.Duration(i)*time.Second, []string{"jane", "resizer"}[i%2], widgets, "shop/contested", fmt.Sprintf(widget, 0), fmt.Sprintf(widget, 1+i%2))
	}
	for i := range 30 {
		c.write(time.Duration(i)*20*time.Second, "counter", widgets, "shop/counted", fmt.Sprintf(widget, 0), fmt.Sprintf(widget, 1+i))
		c.write(time.Duration(i)*time.Second, "counter", widgets, "shop/calm", fmt.Sprintf(widget, 0), fmt.Sprintf(widget, 1+i))
	}
	r := result(t, c, newCopy())
	var told []string
	for _, f := range r.Fights {
		told = append(told, fmt.Sprint(f.Object.Name, " ", f.Path, " ", f.By, " ", f.Times))
	}
	slices.Sort(told)
	if want := []string{"contested .spec.size [jane resizer] 8", "counted .spec.size [counter] 30"}; !slices.Equal(told, want) {
		t.Errorf("fights are %q, and not %q", told, want)
	}
	if r.Verdict != NotAtRest {
		t.Errorf("the verdict is %s", r.Verdict)
	}
}

// A drained node has below it the Pods that left, and those the Pods that replace them.
func TestDrain(t *testing.T) {
	c := newCopy()
	c.write(0, "jane", nodes, "n1", `{apiVersion: v1, kind: Node, spec: {podCIDR: a}}`, `{apiVersion: v1, kind: Node, spec: {podCIDR: a, unschedulable: true, taints: [{key: node.kubernetes.io/unschedulable, effect: NoSchedule}]}}`)
	evicted := strings.Replace(running, "conditions: [", `conditions: [{type: DisruptionTarget, status: "True", reason: EvictionByEvictionAPI}, `, 1)
	for _, name := range []string{"shop/web-1-bcdfg", "shop/web-1-hjklm"} {
		l := c.write(0, "jane", pods, name, running, evicted)
		c.write(time.Second, "kubelet", pods, name, running, "")
		l.after = object(evicted)
		c.write(time.Second, "replicaset-controller", pods, name+"-2bcdf", "", running)
	}
	r := result(t, c, newCopy())
	expect(t, r.Tree, `
		changed Node n1 (cordoned)
		  .spec.unschedulable →true
		  deleted Pod web-1-bcdfg +1
		    created Pod web-1-bcdfg-2bcdf`)
	if len(r.Evicted) != 2 || r.Evicted[0].Reason != "evicted by request" {
		t.Errorf("evicted are %+v", r.Evicted)
	}
}

// Values of Secrets are never in a result, and nothing in it is without bounds.
func TestBounds(t *testing.T) {
	c := newCopy()
	c.write(0, "jane", schema.GroupResource{Resource: "secrets"}, "shop/db", `{apiVersion: v1, kind: Secret, data: {password: b2xkcGFzcw==}}`, `{apiVersion: v1, kind: Secret, data: {password: bmV3cGFzcw==}}`)
	large := strings.Repeat("x", 3<<20)
	c.write(0, "jane", schema.GroupResource{Resource: "configmaps"}, "shop/large", `{apiVersion: v1, kind: ConfigMap, data: {a: b}}`, `{apiVersion: v1, kind: ConfigMap, data: {a: `+large+`}}`)
	for i := range 3000 {
		c.write(0, "jane", schema.GroupResource{Resource: "configmaps"}, fmt.Sprintf("shop/many-%d", i), "", fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, data: {a: '%d'}}", i))
		c.write(0, "robot", schema.GroupResource{Resource: "configmaps"}, fmt.Sprintf("ns-%d/other", i), "", fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, data: {a: '%d'}}", i))
	}
	r := result(t, c, newCopy())
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"oldpass", "newpass", "b2xkcGFzcw", "bmV3cGFzcw"} {
		if strings.Contains(string(text), value) {
			t.Errorf("the result has the value of a Secret: %s", value)
		}
	}
	if len(text) > 200<<10 {
		t.Errorf("the result has %d bytes", len(text))
	}
	if n := len(r.Tree); n != 3 || r.Tree[2].Alike != 2999 {
		t.Errorf("the tree has %d objects", n)
	}
	if len(r.Elsewhere) != 1 || r.Elsewhere[0].Alike != 2999 {
		t.Errorf("elsewhere are %d objects", len(r.Elsewhere))
	}
}
