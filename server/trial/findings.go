package trial

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic/registry"
)

// happened is an Event of one copy.
type happened struct {
	Event
	shape string
}

var digits = regexp.MustCompile(`[0-9]+`)

// findEvents finds the kinds of Events that the change has brought about, and what they tell of quotas, policies and the like.
func (c *comparison) findEvents() {
	known := map[string]bool{}
	for _, l := range c.twin.events {
		known[c.event(c.twin, l).shape] = true
	}
	var order []*happened
	seen := map[string]*happened{}
	events := slices.Clone(c.trial.events)
	slices.SortFunc(events, func(a, b *life) int { return cmp.Compare(a.writes[0].revision, b.writes[0].revision) })
	for _, l := range events {
		e := c.event(c.trial, l)
		if known[e.shape] {
			continue
		}
		if first := seen[e.shape]; first != nil {
			first.Times += e.Times
			continue
		}
		seen[e.shape] = e
		order = append(order, e)
	}
	for _, e := range order {
		if hold := holdOf(e.Event); hold != nil {
			c.result.Held = append(c.result.Held, *hold)
		}
		c.result.Events = append(c.result.Events, e.Event)
	}
	slices.SortStableFunc(c.result.Events, func(a, b Event) int { return -cmp.Compare(warns(a), warns(b)) })
}

// combined is how the message of an Event begins that stands for several.
const combined = "(combined from similar events): "

func warns(e Event) int {
	if e.Type == corev1.EventTypeWarning {
		return 1
	}
	return 0
}

func (c *comparison) event(of *outcome, l *life) *happened {
	o := decode(l.after)
	involved := field(o, "involvedObject")
	group, _ := schema.ParseGroupVersion(text(involved, "apiVersion"))
	kind := group.WithKind(text(involved, "kind"))
	e := &happened{Event: Event{
		Type: text(o, "type"), Reason: text(o, "reason"), Message: strings.TrimPrefix(text(o, "message"), combined), At: c.after(of, l.writes[0].at),
		Object: Reference{APIVersion: text(involved, "apiVersion"), Kind: kind.Kind, Namespace: text(involved, "namespace"), Name: text(involved, "name")},
		Times:  int(max(1, number(o, "count"), number(o, "series", "count"))),
	}}
	if resource, _, ok := of.served.ResourceOf(kind.GroupKind()); ok {
		e.Object.Resource = resource.Resource
	}
	name := withoutCounts(e.Object.Name)
	message := strings.ReplaceAll(e.Message, e.Object.Name, name)
	words := strings.Fields(message)
	for i, word := range words {
		bare := strings.Trim(word, `"'.,:()`)
		if generatedName.MatchString(bare) {
			words[i] = withoutCounts(bare)
		}
	}
	e.shape = strings.Join([]string{e.Type, e.Reason, kind.String(), e.Object.Namespace, name, digits.ReplaceAllString(strings.Join(words, " "), "0")}, "\x00")
	return e
}

// stops are how messages of the API begin, or what is in them, if something has stopped a request.
var stops = []struct {
	kind    string
	message *regexp.Regexp // whose group is the name of what stopped it
}{
	{"quota", regexp.MustCompile(`exceeded quota: ([^,\s]+)`)},
	{"quota", regexp.MustCompile(`failed quota: ([^:\s]+)`)},
	{"policy", regexp.MustCompile(`ValidatingAdmissionPolicy '([^']+)'`)},
	{"webhook", regexp.MustCompile(`admission webhook "([^"]+)" denied`)},
	{"webhook", regexp.MustCompile(`failed calling webhook "([^"]+)"`)},
	{"security", regexp.MustCompile(`violates PodSecurity "([^"]+)"`)},
	{"budget", regexp.MustCompile(`disruption budget(?: ([a-z0-9.-]+))? needs`)},
	{"budget", regexp.MustCompile(`violate the pod's disruption budget()`)},
	{"limit", regexp.MustCompile(`((?:maximum|minimum) \S+ (?:usage )?per \S+) is`)},
	{"access", regexp.MustCompile(`()cannot \S+ resource`)},
}

// holdOf returns what an Event tells of something that stopped a controller; nil if it does not.
func holdOf(e Event) *Hold {
	if e.Type != corev1.EventTypeWarning || !strings.HasPrefix(e.Reason, "Failed") || strings.Contains(e.Message, registry.OptimisticLockErrorMsg) {
		return nil // who meets a conflict tries again at once
	}
	kind, by := stoppedBy(e.Message)
	if kind == "" {
		if e.Reason != "FailedCreate" && e.Reason != "FailedDelete" && e.Reason != "FailedUpdate" {
			return nil
		}
		if e.Reason == "FailedDelete" && strings.HasSuffix(e.Message, " not found") { // it was deleted twice: the controller had not heard of it yet
			return nil
		}
		kind = "other"
	}
	return &Hold{Kind: kind, Object: e.Object, By: by, Message: e.Message, Times: e.Times, At: e.At}
}

// stoppedBy returns what kind of thing stopped a request, and its name, by the message of the API; "" if it is none of these.
func stoppedBy(message string) (kind, name string) {
	for _, s := range stops {
		if found := s.message.FindStringSubmatch(message); found != nil {
			return s.kind, found[1]
		}
	}
	return "", ""
}

// findPending finds the Pods that the change has made, or made wait, and that run nowhere at the end.
func (c *comparison) findPending() {
	seen := map[string]int{}
	for _, e := range c.effects {
		if e.key.GroupResource != pods || e.absent || !e.life.exists {
			continue
		}
		o := decode(e.life.after)
		why := unschedulable(o)
		if why == "" && e.state.text == "Pending" {
			why = text(o, "status", "message")
		}
		if why == "" {
			continue
		}
		since := c.after(c.trial, e.life.writes[0].at)
		if t, err := time.Parse(time.RFC3339, text(condition(o, "PodScheduled"), "lastTransitionTime")); err == nil {
			since = max(since, c.after(c.trial, t))
		}
		alike := e.key.namespace + " " + why
		if len(e.owners) > 0 {
			alike += string(e.owners[0].uid)
		}
		if i, ok := seen[alike]; ok {
			c.result.Pending[i].Alike++
			continue
		}
		seen[alike] = len(c.result.Pending)
		c.result.Pending = append(c.result.Pending, PendingPod{Pod: e.Reference, Since: since, Reason: why})
	}
}

// evictions say in words why a Pod was to go.
var evictions = map[string]string{
	corev1.PodReasonPreemptionByScheduler: "preempted", corev1.PodReasonTerminationByKubelet: "evicted by the kubelet",
	"DeletionByTaintManager": "evicted because of a taint", "EvictionByEvictionAPI": "evicted by request", "DeletionByPodGC": "its node is gone",
}

// findEvicted finds the Pods that had to leave.
func (c *comparison) findEvicted() {
	for _, e := range c.effects {
		if e.key.GroupResource != pods || e.absent {
			continue
		}
		left := e.life.after
		if e.life.removed != nil {
			left = e.life.removed
		}
		disrupted := condition(decode(left), string(corev1.DisruptionTarget))
		if text(disrupted, "status") != string(metav1.ConditionTrue) {
			continue
		}
		reason := cmp.Or(evictions[text(disrupted, "reason")], text(disrupted, "reason"))
		if message := text(disrupted, "message"); text(disrupted, "reason") == corev1.PodReasonPreemptionByScheduler {
			reason += ": " + message
		}
		c.result.Evicted = append(c.result.Evicted, Eviction{Pod: e.Reference, At: e.Last, Reason: reason})
	}
}

// findNotRun finds what is missing in the copy, whose controllers are not sqube's.
func (c *comparison) findNotRun() {
	counts := map[NotRun]int{}
	var order []NotRun
	for _, e := range c.effects {
		if e.absent || !e.life.exists {
			continue
		}
		missing := NotRun{Kind: kindName(e.key.Group, e.Kind)}
		_, custom := c.trial.served.Definition(e.key.GroupResource)
		switch {
		case e.key.Group == gatewayAPIGroup || e.key.GroupResource == ingresses:
			missing.Why = "no controller of ingresses and gateways ran"
		case custom:
			if c.managed(e) {
				continue
			}
			missing.Why = "no controller of this kind ran"
		case e.key.GroupResource == services && text(decode(e.life.after), "spec", "type") == "LoadBalancer":
			missing.Kind, missing.Why = "service of type LoadBalancer", "no cloud provider ran: it gets no address"
		default:
			continue
		}
		if counts[missing] == 0 {
			order = append(order, missing)
		}
		counts[missing]++
	}
	for _, missing := range order {
		missing.Objects = counts[missing]
		c.result.NotRun = append(c.result.NotRun, missing)
	}
}

// managed reports whether somebody besides the user has written to a custom object, or made something for it.
func (c *comparison) managed(e *effect) bool {
	for i := range e.life.writes {
		if w := &e.life.writes[i]; !w.user && !slices.Contains([]string{"generic-garbage-collector", "namespace-controller"}, w.by) {
			return true
		}
	}
	return slices.ContainsFunc(e.Caused, func(o *Object) bool { return true })
}
