package trial

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// state is what an object has come to.
type state struct {
	text string // "" if it is plain
	// bad is set if the object waits for something, or has failed.
	bad bool
}

// stateOf returns the state of an object with content.
func stateOf(resource schema.GroupResource, object map[string]any) state {
	if object == nil {
		return state{}
	}
	if field(object, "metadata", "deletionTimestamp") != nil {
		return terminating(resource, object)
	}
	if of := states[resource]; of != nil {
		return of(object)
	}
	for _, kind := range []string{"Ready", "Available", "Established"} {
		if c := condition(object, kind); c != nil && text(c, "status") == "False" {
			return state{reasoned("not "+strings.ToLower(kind), text(c, "reason")), true}
		}
	}
	return state{}
}

var states = map[schema.GroupResource]func(map[string]any) state{
	deployments: deploymentState, statefulSets: statefulSetState, daemonSets: daemonSetState, replicaSets: replicaSetState, jobs: jobState,
	pods: podState, nodes: nodeState, claims: claimState, volumes: volumeState, endpointSlices: sliceState, endpoints: noState,
	quotas: quotaState, budgets: budgetState, autoscalers: autoscalerState, services: noState, cronJobs: cronJobState, definitions: definitionState,
}

func noState(map[string]any) state { return state{} }

func terminating(resource schema.GroupResource, object map[string]any) state {
	if resource == namespaces {
		for _, kind := range []string{"NamespaceContentRemaining", "NamespaceFinalizersRemaining", "NamespaceDeletionContentFailure", "NamespaceDeletionDiscoveryFailure"} {
			if c := condition(object, kind); c != nil && text(c, "status") == "True" {
				return state{"Terminating: " + text(c, "message"), true}
			}
		}
	}
	var names []string
	for _, f := range items(object, "metadata", "finalizers") {
		if name, ok := f.(string); ok {
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		return state{"Terminating: waits for " + plural(len(names), "the finalizer", "the finalizers") + " " + strings.Join(names, ", "), true}
	}
	return state{"Terminating", true}
}

func readyOf(have, want int64) string { return fmt.Sprintf("%d of %d ready", have, want) }

func reasoned(what, reason string) string {
	if reason == "" {
		return what
	}
	return what + ": " + reason
}

func deploymentState(o map[string]any) state {
	want := numberOr(1, o, "spec", "replicas")
	have, updated := number(o, "status", "readyReplicas"), number(o, "status", "updatedReplicas")
	s := state{text: readyOf(have, want), bad: have < want || updated < want || number(o, "status", "replicas") > want}
	if updated < want {
		s.text = fmt.Sprintf("%d of %d updated, %d ready", updated, want, have)
	} else if more := number(o, "status", "replicas") - updated; more > 0 {
		s.text += fmt.Sprintf(", %d old", more)
	}
	if field(o, "spec", "paused") == true {
		return state{text: s.text + ", paused"}
	}
	if c := condition(o, "Progressing"); c != nil && text(c, "status") == "False" && text(c, "reason") == "ProgressDeadlineExceeded" {
		s.text, s.bad = s.text+", progress deadline exceeded", true
	}
	return s
}

func statefulSetState(o map[string]any) state {
	want, have := numberOr(1, o, "spec", "replicas"), number(o, "status", "readyReplicas")
	s := state{text: readyOf(have, want), bad: have != want}
	partition := number(o, "spec", "updateStrategy", "rollingUpdate", "partition")
	if text(o, "spec", "updateStrategy", "type") != "OnDelete" && text(o, "status", "updateRevision") != text(o, "status", "currentRevision") && partition == 0 {
		s = state{fmt.Sprintf("%d of %d updated, %d ready", number(o, "status", "updatedReplicas"), want, have), true}
	}
	return s
}

func daemonSetState(o map[string]any) state {
	want, have := number(o, "status", "desiredNumberScheduled"), number(o, "status", "numberReady")
	s := state{text: readyOf(have, want), bad: have < want}
	if updated := number(o, "status", "updatedNumberScheduled"); updated < want && text(o, "spec", "updateStrategy", "type") != "OnDelete" {
		s = state{fmt.Sprintf("%d of %d updated, %d ready", updated, want, have), true}
	}
	return s
}

func replicaSetState(o map[string]any) state {
	want, have := numberOr(1, o, "spec", "replicas"), number(o, "status", "readyReplicas")
	if want == 0 && number(o, "status", "replicas") == 0 {
		return state{}
	}
	return state{readyOf(have, want), have < want}
}

func jobState(o map[string]any) state {
	if c := condition(o, "Failed"); c != nil && text(c, "status") == "True" {
		return state{reasoned("failed", text(c, "reason")), true}
	}
	if c := condition(o, "Complete"); c != nil && text(c, "status") == "True" {
		return state{text: "complete"}
	}
	if field(o, "spec", "suspend") == true {
		return state{text: "suspended"}
	}
	want := numberOr(1, o, "spec", "completions")
	return state{fmt.Sprintf("%d of %d succeeded", number(o, "status", "succeeded"), want), true}
}

func cronJobState(o map[string]any) state {
	if field(o, "spec", "suspend") == true {
		return state{text: "suspended"}
	}
	return state{}
}

// startReasons are those of containers that wait while they start, as all do.
var startReasons = []string{"ContainerCreating", "PodInitializing"}

func podState(o map[string]any) state {
	for _, kind := range []string{"initContainerStatuses", "containerStatuses"} {
		for _, c := range items(o, "status", kind) {
			if reason := text(c, "state", "waiting", "reason"); reason != "" && !slices.Contains(startReasons, reason) {
				return state{reason, true}
			}
		}
	}
	switch phase := text(o, "status", "phase"); phase {
	case "Failed":
		return state{reasoned(phase, text(o, "status", "reason")), true}
	case "Succeeded":
		return state{text: phase}
	case "Running":
		if c := condition(o, "Ready"); c != nil && text(c, "status") != "True" {
			return state{"not ready", true}
		}
		return state{}
	default:
		return state{"Pending", true}
	}
}

// unschedulable returns why a Pod has no node; "" if it has one.
func unschedulable(o map[string]any) string {
	if text(o, "status", "phase") != "Pending" || text(o, "spec", "nodeName") != "" {
		return ""
	}
	c := condition(o, "PodScheduled")
	if message := text(c, "message"); message != "" {
		return message
	}
	if len(items(o, "spec", "schedulingGates")) > 0 {
		return "it has scheduling gates"
	}
	return reasoned("not scheduled", text(c, "reason"))
}

func nodeState(o map[string]any) state {
	var all []string
	c := condition(o, "Ready")
	bad := c != nil && text(c, "status") != "True"
	if bad {
		all = append(all, "not ready")
	}
	if field(o, "spec", "unschedulable") == true {
		all = append(all, "cordoned")
	}
	return state{strings.Join(all, ", "), bad}
}

func claimState(o map[string]any) state {
	if phase := text(o, "status", "phase"); phase != "Bound" {
		return state{phase, true}
	}
	return state{}
}

func volumeState(o map[string]any) state {
	switch phase := text(o, "status", "phase"); phase {
	case "Bound", "Available", "Pending", "":
		return state{}
	default:
		return state{phase, phase == "Failed"}
	}
}

func sliceState(o map[string]any) state {
	all, up := items(o, "endpoints"), 0
	for _, e := range all {
		if field(e, "conditions", "ready") == true {
			up++
		}
	}
	if up == len(all) {
		return state{text: fmt.Sprintf("%d %s", up, plural(up, "endpoint", "endpoints"))}
	}
	return state{text: fmt.Sprintf("%d %s, %d ready", len(all), plural(len(all), "endpoint", "endpoints"), up)}
}

func quotaState(o map[string]any) state {
	var all []string
	hard, _ := field(o, "status", "hard").(map[string]any)
	for name, most := range hard {
		used := text(o, "status", "used", name)
		if used != "" {
			all = append(all, fmt.Sprintf("%s %s of %v", name, used, most))
		}
	}
	slices.Sort(all)
	return state{text: strings.Join(all, ", ")}
}

func budgetState(o map[string]any) state {
	allowed := number(o, "status", "disruptionsAllowed")
	return state{text: fmt.Sprintf("%d %s allowed", allowed, plural(int(allowed), "disruption", "disruptions"))}
}

func autoscalerState(o map[string]any) state {
	for _, kind := range []string{"AbleToScale", "ScalingActive"} {
		if c := condition(o, kind); c != nil && text(c, "status") == "False" && text(c, "reason") != "ScalingDisabled" {
			return state{reasoned("does not scale", text(c, "reason")), true}
		}
	}
	return state{text: fmt.Sprintf("wants %d", number(o, "status", "desiredReplicas"))}
}

func definitionState(o map[string]any) state {
	for _, kind := range []string{"NamesAccepted", "Established"} {
		if c := condition(o, kind); c != nil && text(c, "status") == "False" {
			return state{reasoned("not established", text(c, "reason")), true}
		}
	}
	return state{}
}

func plural(n int, one, more string) string {
	if n == 1 {
		return one
	}
	return more
}
