package simnodes

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A kubelet's back-off between runs of a container, and between attempts to pull an image.
const (
	firstBackOff   = 10 * time.Second
	longestBackOff = 5 * time.Minute
	// pullErrorShown is for how long a failed pull is ErrImagePull, before the kubelet reports that it backs off.
	pullErrorShown = time.Second
)

// Exit codes of containers that are killed, and that end on SIGTERM.
const (
	killedCode     = 137
	terminatedCode = 143
)

// container is the life of a container. Its time is that of its own steps, which may be behind the clock.
type container struct {
	spec    *corev1.Container
	pod     types.UID
	init    bool // an init container that ends
	sidecar bool // an init container that does not
	policy  corev1.RestartPolicy

	runs     []Run
	stop     Run
	scripted bool // the runs are not the default

	kept *corev1.ContainerStatus // what an earlier kubelet has reported, while that has not changed
	held bool                    // it lacks what its environment is made of

	begun    bool
	attempt  int // runs, with those whose image could not be pulled
	restarts int32
	at       time.Time // of the last step
	left     []Step
	killAt   time.Time // zero unless the container is being stopped

	state, last    corev1.ContainerState
	ready, started bool
	probed         bool // the run decides when it is ready
	id             string
	done           bool // it has ended and is not restarted

	backOff, pullBackOff time.Duration
	backedOff            time.Time // when backOff was last used
	log, previous        *log
}

func (c *container) run() Run { return c.runs[min(c.attempt, len(c.runs)-1)] }

func (c *container) begin(at time.Time) {
	run := c.run()
	c.kept = nil
	c.begun, c.at, c.left = true, at, run
	c.probed = run.has(stepReady, stepUnready)
	if !run.has(stepStart, stepFailPull) {
		c.start()
	} else if c.state.Waiting == nil || c.restarts == 0 && c.attempt == 0 {
		c.wait("ContainerCreating", "")
	}
}

// resume begins a run that has started at that time, with what follows its start.
func (c *container) resume(at time.Time) {
	c.begin(at)
	if c.state.Running == nil {
		i := slices.IndexFunc(c.left, func(s Step) bool { return s.kind == stepStart })
		if i < 0 {
			i = len(c.left) - 1
		}
		c.left = c.left[i+1:]
		c.start()
	}
}

func (c *container) wait(reason, message string) {
	c.state = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

func (c *container) start() {
	c.state = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: seconds(c.at)}}
	c.ready = !c.probed
	c.started = c.spec.StartupProbe == nil || c.ready
	c.id = fmt.Sprintf("simnodes://%s-%s-%d", c.pod, c.spec.Name, c.restarts)
	c.pullBackOff = 0
	c.previous, c.log = c.log, newLog()
}

// due returns when the next step is due, and whether there is one.
func (c *container) due() (time.Time, bool) {
	due, ok := c.at, len(c.left) > 0
	if ok && c.left[0].kind == stepWait {
		due = due.Add(c.left[0].wait)
	}
	if !c.killAt.IsZero() && (!ok || due.After(c.killAt)) {
		return c.killAt, true
	}
	return due, ok
}

// step takes the next step, which is due at that time. It returns the message of an eviction.
func (c *container) step(at time.Time) (evicted *string) {
	if !c.killAt.IsZero() && !at.Before(c.killAt) {
		c.at = at
		c.exit(killedCode, "", "")
		return nil
	}
	step := c.left[0]
	c.at, c.left = at, c.left[1:]
	if step.kind != stepWait && step.kind != stepLog {
		c.kept = nil
	}
	switch step.kind {
	case stepStart:
		c.start()
	case stepReady:
		c.ready, c.started = true, true
	case stepUnready:
		c.ready = false
	case stepLog:
		c.log.write(at, step.message)
	case stepExit:
		c.exit(step.code, step.reason, step.message)
	case stepLiveness:
		c.exit(killedCode, "", "")
	case stepEvict:
		return &step.message
	case stepFailPull:
		c.failPull(step.message)
	case stepBackOffPull:
		c.wait("ImagePullBackOff", fmt.Sprintf("Back-off pulling image %q: %s", c.spec.Image, step.message))
	case stepNext:
		c.attempt++
		c.begin(at)
	}
	return nil
}

// failPull reports that pulling the image has failed, and lets the next run begin after the back-off.
func (c *container) failPull(message string) {
	c.pullBackOff = min(max(c.pullBackOff*2, firstBackOff), longestBackOff)
	message = cmp.Or(message, fmt.Sprintf("failed to pull image %q: not found", c.spec.Image))
	c.wait("ErrImagePull", message)
	c.left = []Step{Wait(pullErrorShown), {kind: stepBackOffPull, message: "ErrImagePull: " + message}, Wait(c.pullBackOff - pullErrorShown), {kind: stepNext}}
}

// exit ends the run.
func (c *container) exit(code int32, reason, message string) {
	if reason == "" {
		if reason = "Completed"; code != 0 {
			reason = "Error"
		}
	}
	c.kept = nil
	ended := &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, Message: message, FinishedAt: seconds(c.at)}
	if c.state.Running != nil {
		ended.StartedAt = c.state.Running.StartedAt
		ended.ContainerID = c.id
	}
	c.state = corev1.ContainerState{Terminated: ended}
	c.ready, c.started, c.left = false, false, nil
	c.log.end()
	if stopped := !c.killAt.IsZero(); stopped || !c.restartable(code) {
		c.killAt, c.done = time.Time{}, true
		return
	}
	c.restart()
}

// restart lets the next run begin after the back-off.
func (c *container) restart() {
	delay := c.backOff
	if c.backOff == 0 || c.at.Sub(c.backedOff) > 2*longestBackOff { // it has run for long
		delay, c.backOff = 0, firstBackOff
	} else {
		c.backOff = min(2*c.backOff, longestBackOff)
	}
	c.backedOff = c.at.Add(delay)
	c.last = c.state
	c.restarts++
	c.wait("CrashLoopBackOff", fmt.Sprintf("back-off %s restarting failed container=%s", delay, c.spec.Name))
	c.left = []Step{Wait(delay), {kind: stepNext}}
}

// restartable reports whether the container is restarted after an exit.
func (c *container) restartable(code int32) bool {
	switch {
	case c.sidecar:
		return true
	case c.policy == corev1.RestartPolicyAlways:
		return !c.init || code != 0
	case c.policy == corev1.RestartPolicyOnFailure:
		return code != 0
	default:
		return false
	}
}

// terminate stops the container: it gets until then to end by itself.
func (c *container) terminate(at, killAt time.Time) {
	switch {
	case c.done:
	case !c.begun:
		c.done = true
	case c.state.Running == nil: // it never runs again
		c.kept = nil
		if c.state = c.last; c.state.Terminated == nil {
			c.state.Terminated = &corev1.ContainerStateTerminated{
				ExitCode: killedCode, Reason: "ContainerStatusUnknown", Message: "The container could not be located when the pod was terminated",
			}
		}
		c.last, c.done, c.left = corev1.ContainerState{}, true, nil
	case c.killAt.IsZero():
		c.at, c.left, c.killAt = at, c.stop, killAt
	case killAt.Before(c.killAt): // the grace period has become shorter
		c.killAt = killAt
	}
}

// seconds returns a time as an API server keeps it.
func seconds(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

// status returns what the kubelet reports.
func (c *container) status() corev1.ContainerStatus {
	status := corev1.ContainerStatus{
		Name: c.spec.Name, Image: c.spec.Image, State: c.state, LastTerminationState: c.last, Ready: c.ready, RestartCount: c.restarts, Started: new(c.started),
	}
	if c.id != "" {
		status.ImageID, status.ContainerID = c.spec.Image, c.id
	}
	if c.init {
		status.Ready = c.state.Terminated != nil && c.state.Terminated.ExitCode == 0
	}
	return status
}
