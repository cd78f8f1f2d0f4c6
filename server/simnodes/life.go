package simnodes

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// life is the life of a Pod on its node, without any connection: it says what has happened by a time and when something happens next.
type life struct {
	pod        *corev1.Pod
	started    time.Time
	containers []*container // init containers first, in order

	reason, message string // why the node has ended the Pod, if so
	stopping        bool   // the containers are being stopped
	killAt          time.Time
	over            bool // all containers have ended for good

	unknown   bool // what it lacks; nothing begins before
	lacks     lacks
	nextLook  time.Time // for what it lacks
	lookAfter time.Duration

	kept *corev1.PodStatus // what was reported when the node got the Pod, while that has not changed; see Options.Keep
}

// newLife returns the life of a Pod that its node has got at that time. scripts returns the runs of a container. habits are for those without a
// script; they are nil unless the Pod is kept as it is.
func newLife(pod *corev1.Pod, at time.Time, scripts func(container string, init bool) (runs []Run, stop Run), habits habits) *life {
	l := &life{pod: pod, started: at}
	if pod.Status.StartTime != nil {
		l.started = pod.Status.StartTime.Time
	}
	add := func(spec *corev1.Container, init bool) {
		c := &container{spec: spec, pod: pod.UID, policy: pod.Spec.RestartPolicy}
		if always := spec.RestartPolicy != nil && *spec.RestartPolicy == corev1.ContainerRestartPolicyAlways; init {
			c.sidecar, c.init = always, !always
		} else if spec.RestartPolicy != nil {
			c.policy = corev1.RestartPolicy(*spec.RestartPolicy)
		}
		c.runs, c.stop = scripts(spec.Name, init)
		c.scripted = len(c.runs) > 0
		if habits != nil {
			habits(c)
		}
		if len(c.runs) == 0 {
			c.runs = []Run{c.defaultRun()}
		}
		if c.stop == nil {
			c.stop = Run{Exit(terminatedCode)}
		}
		c.wait("PodInitializing", "")
		if len(pod.Spec.InitContainers) == 0 {
			c.wait("ContainerCreating", "")
		}
		l.containers = append(l.containers, c)
	}
	for i := range pod.Spec.InitContainers {
		add(&pod.Spec.InitContainers[i], true)
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i], false)
	}
	l.unknown = habits != nil && pod.Status.StartTime == nil && len(referencesOf(pod)) > 0
	l.adopt(at, habits != nil)
	l.settle(at)
	return l
}

// jobDuration is how long containers run in Pods that are to end, if no script says so.
const jobDuration = time.Second

func (c *container) defaultRun() Run {
	switch {
	case c.init:
		return Run{Exit(0)}
	case c.sidecar || c.policy == corev1.RestartPolicyAlways:
		return nil
	default:
		return Run{Wait(jobDuration), Exit(0)}
	}
}

// adopt continues the containers of a Pod that an earlier kubelet of the node has reported.
func (l *life) adopt(at time.Time, keep bool) {
	reported := map[string]*corev1.ContainerStatus{}
	for _, statuses := range [][]corev1.ContainerStatus{l.pod.Status.InitContainerStatuses, l.pod.Status.ContainerStatuses} {
		for i := range statuses {
			reported[statuses[i].Name] = &statuses[i]
		}
	}
	for _, c := range l.containers {
		was := reported[c.spec.Name]
		if keep && was != nil && !c.scripted && l.keep(c, was, at) {
			continue
		}
		if was == nil || was.ContainerID == "" { // it has not started
			continue
		}
		c.restarts, c.attempt, c.last, c.id = was.RestartCount, int(was.RestartCount), was.LastTerminationState, was.ContainerID
		switch ended := was.State.Terminated; {
		case was.State.Running != nil:
			c.resume(was.State.Running.StartedAt.Time)
			c.id = was.ContainerID
		case ended != nil && !c.restartable(ended.ExitCode):
			c.state, c.begun, c.done, c.log = was.State, true, true, newLog()
			c.log.end()
		default:
			c.begin(at)
		}
	}
	if keep && l.pod.Status.StartTime != nil {
		l.kept = l.pod.Status.DeepCopy()
	}
}

// advance lets everything happen that is due by now. It returns when something happens next, if so.
func (l *life) advance(now time.Time) (next time.Time, more bool) {
	for {
		next, c, more := l.next()
		if !more || next.After(now) {
			return next, more
		}
		if c == nil {
			l.end(next, "DeadlineExceeded", "Pod was active on the node longer than the specified deadline", l.grace())
		} else if evicted := c.step(next); evicted != nil {
			l.end(next, "Evicted", *evicted, 0)
		}
		l.settle(next)
	}
}

// next returns the next event: of a container, or nil for the Pod's deadline.
func (l *life) next() (at time.Time, of *container, ok bool) {
	if l.over {
		return time.Time{}, nil, false
	}
	if seconds := l.pod.Spec.ActiveDeadlineSeconds; seconds != nil && !l.stopping {
		at, ok = l.started.Add(time.Duration(*seconds)*time.Second), true
	}
	for _, c := range l.containers {
		if due, more := c.due(); more && (!ok || due.Before(at)) {
			at, of, ok = due, c, true
		}
	}
	return at, of, ok
}

func (l *life) grace() time.Duration {
	if seconds := l.pod.Spec.TerminationGracePeriodSeconds; seconds != nil {
		return time.Duration(*seconds) * time.Second
	}
	return 0
}

// end ends the Pod for a reason of the node.
func (l *life) end(at time.Time, reason, message string, grace time.Duration) {
	l.reason, l.message = reason, message
	l.terminate(at, grace)
}

// terminate stops the containers, and kills those that still run after the grace period.
func (l *life) terminate(at time.Time, grace time.Duration) {
	if killAt := at.Add(grace); !l.stopping || killAt.Before(l.killAt) {
		l.stopping, l.killAt = true, killAt
		l.settle(at)
	}
}

// settle draws the consequences of what has happened by that time.
func (l *life) settle(at time.Time) {
	if l.over {
		return
	}
	if !l.stopping {
		l.proceed(at)
	}
	if !l.stopping && !l.ended() {
		return
	}
	l.over = true
	for _, sidecars := range []bool{false, true} { // they stop when the others have
		for _, c := range l.containers {
			if c.sidecar != sidecars {
				continue
			}
			if l.killAt.IsZero() {
				l.killAt = at.Add(l.grace())
			}
			c.terminate(at, l.killAt)
			l.over = l.over && c.done
		}
		if !l.over {
			return
		}
	}
}

// proceed begins the containers whose turn it is.
func (l *life) proceed(at time.Time) {
	if l.unknown || l.lacks.mount != "" {
		return
	}
	for _, c := range l.containers {
		if !c.begun && !c.held {
			c.begin(at)
		}
		if waits := c.init && !c.succeeded() || c.sidecar && !c.started; waits {
			return
		}
	}
}

func (c *container) succeeded() bool {
	return c.done && c.state.Terminated != nil && c.state.Terminated.ExitCode == 0
}

// ended reports whether the containers have ended that the Pod is for, or an init container has failed for good.
func (l *life) ended() bool {
	for _, c := range l.containers {
		if c.init && c.done && !c.succeeded() {
			return true
		}
	}
	for _, c := range l.containers {
		if !c.init && !c.sidecar && !c.done {
			return false
		}
	}
	return true
}

func (l *life) phase() corev1.PodPhase {
	pending, failed := false, l.reason != ""
	for _, c := range l.containers {
		switch {
		case c.init:
			pending = pending || !c.succeeded()
			failed = failed || c.done && !c.succeeded()
		case c.sidecar:
			pending = pending || !c.begun
		default:
			pending = pending || c.state.Waiting != nil && c.last.Terminated == nil
			failed = failed || c.done && !c.succeeded()
		}
	}
	switch {
	case l.over && failed:
		return corev1.PodFailed
	case l.over:
		return corev1.PodSucceeded
	case pending && !l.stopping:
		return corev1.PodPending
	default:
		return corev1.PodRunning
	}
}

// status returns the Pod's status, based on the one that the server has.
func (l *life) status(was corev1.PodStatus, now time.Time) corev1.PodStatus {
	if l.asBefore() {
		return l.keptStatus(was, now)
	}
	status := *was.DeepCopy()
	status.Phase, status.StartTime, status.ObservedGeneration = l.phase(), new(seconds(l.started)), l.pod.Generation
	if l.reason != "" && l.over {
		status.Reason, status.Message = l.reason, l.message
	}
	status.InitContainerStatuses, status.ContainerStatuses = nil, nil
	var uninitialized, unready []string
	for _, c := range l.containers {
		reported := c.status()
		if c.kept != nil {
			reported = *c.kept
		}
		if c.init || c.sidecar {
			status.InitContainerStatuses = append(status.InitContainerStatuses, reported)
		} else {
			status.ContainerStatuses = append(status.ContainerStatuses, reported)
		}
		if c.init && !c.succeeded() || c.sidecar && !c.started && !l.over {
			uninitialized = append(uninitialized, c.spec.Name)
		}
		if !c.init && !reported.Ready {
			unready = append(unready, c.spec.Name)
		}
	}
	set := func(kind corev1.PodConditionType, reason, message string) {
		l.setCondition(&status, kind, reason, message, now)
	}
	set(corev1.PodScheduled, "", "")
	set(corev1.PodReadyToStartContainers, "", "")
	if len(uninitialized) > 0 {
		set(corev1.PodInitialized, "ContainersNotInitialized", fmt.Sprintf("containers with incomplete status: %v", uninitialized))
	} else {
		set(corev1.PodInitialized, "", "")
	}
	reason, message := "", ""
	switch {
	case status.Phase == corev1.PodSucceeded:
		reason = "PodCompleted"
	case status.Phase == corev1.PodFailed:
		reason = "PodFailed"
	case len(unready) > 0:
		reason, message = "ContainersNotReady", fmt.Sprintf("containers with unready status: %v", unready)
	}
	set(corev1.ContainersReady, reason, message)
	if reason != "" {
		set(corev1.PodReady, reason, message)
	} else {
		l.setReady(&status, now)
	}
	return status
}

// setReady says whether the Pod is ready, whose containers are.
func (l *life) setReady(status *corev1.PodStatus, now time.Time) {
	reason, message := "", ""
	if gate := l.closedGate(status); gate != "" {
		reason, message = "ReadinessGatesNotReady", fmt.Sprintf("the status of pod readiness gate %q is not \"True\"", gate)
	}
	if c := condition(status, corev1.PodReady); l.kept != nil && c != nil && (c.Status == corev1.ConditionTrue) == (reason == "") {
		return // as it was
	}
	l.setCondition(status, corev1.PodReady, reason, message, now)
}

// closedGate returns a readiness gate of the Pod whose condition is not true.
func (l *life) closedGate(status *corev1.PodStatus) corev1.PodConditionType {
	for _, gate := range l.pod.Spec.ReadinessGates {
		if c := condition(status, gate.ConditionType); c == nil || c.Status != corev1.ConditionTrue {
			return gate.ConditionType
		}
	}
	return ""
}

// setCondition sets a condition, which is true unless there is a reason against it.
func (l *life) setCondition(status *corev1.PodStatus, kind corev1.PodConditionType, reason, message string, now time.Time) {
	value := corev1.ConditionTrue
	if reason != "" {
		value = corev1.ConditionFalse
	}
	c := condition(status, kind)
	if c == nil {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: kind})
		c = &status.Conditions[len(status.Conditions)-1]
	}
	if c.Status != value {
		c.LastTransitionTime = seconds(now)
	}
	c.Status, c.Reason, c.Message, c.ObservedGeneration = value, reason, message, l.pod.Generation
}

func condition(status *corev1.PodStatus, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range status.Conditions {
		if status.Conditions[i].Type == kind {
			return &status.Conditions[i]
		}
	}
	return nil
}
