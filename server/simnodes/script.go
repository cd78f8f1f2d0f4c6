package simnodes

import (
	"errors"
	"fmt"
	"path"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Script says what containers do. The first script that selects a container counts, when a node gets the container's Pod. Those that
// no script selects start at once and are ready; they run until they are stopped, except in Pods that are to end (restartPolicy
// Never or OnFailure), where they succeed after a second, and init containers, which succeed at once.
type Script struct {
	// Namespace, Name and Labels select Pods. Empty ones select all. Name may be a pattern such as "web-*" (see path.Match); Labels
	// is a label selector such as "app=web,tier!=cache".
	Namespace, Name, Labels string
	// Match selects among these Pods, without changing them or calling methods of Nodes. Optional.
	Match func(*corev1.Pod) bool
	// First limits the script to that many Pods, the first ones that it selects: the first two attempts of a Job, say. 0 is no limit.
	First int
	// Container selects a container or init container by its name. If it is empty, all containers that are not init containers.
	Container string

	// Runs are what happens each time the container is started. The last one repeats. If there are none, the default is as above.
	Runs []Run
	// Stop is what a running container does when its Pod is deleted or ends otherwise, until Exit or until the Pod's grace period is
	// over and the container is killed (exit code 137). The default is Exit(143) at once.
	Stop Run
}

// Run is one run of a container, step by step. It starts with the first step, unless it contains Start. It is ready while it runs,
// unless it contains Ready or Unready, as a container with a readiness probe: then it is unready until Ready. It goes on after its
// last step, until the container is stopped.
type Run []Step

// Step is a step of a Run. See the functions that return one.
type Step struct {
	kind            stepKind
	wait            time.Duration
	code            int32
	reason, message string
}

type stepKind int

const (
	stepWait stepKind = iota
	stepStart
	stepReady
	stepUnready
	stepLog
	stepExit
	stepLiveness
	stepFailPull
	stepEvict
	// The steps of a kubelet between runs.
	stepBackOffPull
	stepNext
)

// Wait waits until the next step.
func Wait(d time.Duration) Step { return Step{kind: stepWait, wait: d} }

// Start starts the container, whose image is being pulled until then.
func Start() Step { return Step{kind: stepStart} }

// Ready makes the container ready: its readiness probe succeeds, and its startup probe if it has one.
func Ready() Step { return Step{kind: stepReady} }

// Unready makes the container unready: its readiness probe fails.
func Unready() Step { return Step{kind: stepUnready} }

// Log writes a line to the container's log.
func Log(format string, args ...any) Step {
	return Step{kind: stepLog, message: fmt.Sprintf(format, args...)}
}

// Exit ends the run with an exit code, with the reason Completed for 0 and Error for others. What follows depends on the Pod's
// restartPolicy, with a kubelet's back-off (CrashLoopBackOff): a container is restarted at once for the first time, then after 10 s, 20 s, up
// to 5 minutes.
func Exit(code int) Step { return ExitWith(code, "", "") }

// ExitWith is Exit with a reason, such as OOMKilled, and the container's termination message.
func ExitWith(code int, reason, message string) Step {
	return Step{kind: stepExit, code: int32(code), reason: reason, message: message}
}

// FailLiveness makes the liveness probe fail. The container is killed (exit code 137), and restarted unless the Pod's restartPolicy
// is Never.
func FailLiveness() Step { return Step{kind: stepLiveness} }

// FailPull lets pulling the image fail, so the container does not start in this run: ErrImagePull, then ImagePullBackOff until the
// next run, which begins after 10 s, 20 s, up to 5 minutes. It must come before Start.
func FailPull(message string) Step { return Step{kind: stepFailPull, message: message} }

// Evict ends the Pod at once, as a node does that runs out of memory or disk: it is Failed, with the reason Evicted.
func Evict(message string) Step { return Step{kind: stepEvict, message: message} }

// has reports whether a run has a step of one of these kinds.
func (r Run) has(kinds ...stepKind) bool {
	for _, step := range r {
		for _, kind := range kinds {
			if step.kind == kind {
				return true
			}
		}
	}
	return false
}

// check returns an error if a container would take a step that it can't take, because it has started or has not.
func (r Run) check(started bool) error {
	for _, step := range r {
		switch step.kind {
		case stepWait:
		case stepStart, stepFailPull:
			if started {
				return errors.New("a container can't Start or FailPull when it has started")
			}
			started = step.kind == stepStart
		default:
			if !started {
				return errors.New("a container can only Wait and FailPull before Start")
			}
		}
	}
	return nil
}

// scripted is a Script that has been checked.
type scripted struct {
	Script
	selector labels.Selector
	pods     map[types.UID]struct{} // those it has selected, if it has a limit
}

func newScripted(s Script) (*scripted, error) {
	selector, err := labels.Parse(s.Labels)
	if err != nil {
		return nil, fmt.Errorf("the labels %q of a script: %w", s.Labels, err)
	}
	if _, err := path.Match(s.Name, ""); err != nil {
		return nil, fmt.Errorf("the name %q of a script: %w", s.Name, err)
	}
	for _, run := range s.Runs {
		if err := run.check(!run.has(stepStart, stepFailPull)); err != nil {
			return nil, err
		}
	}
	if err := s.Stop.check(true); err != nil {
		return nil, err
	}
	return &scripted{Script: s, selector: selector, pods: map[types.UID]struct{}{}}, nil
}

// selects reports whether the script is for a container. Calls must be made one at a time.
func (s *scripted) selects(pod *corev1.Pod, container string, init bool) bool {
	if s.Container != container && (s.Container != "" || init) {
		return false
	}
	if s.Namespace != "" && s.Namespace != pod.Namespace || !s.selector.Matches(labels.Set(pod.Labels)) {
		return false
	}
	if ok, _ := path.Match(s.Name, pod.Name); !ok && s.Name != "" {
		return false
	}
	if s.Match != nil && !s.Match(pod) {
		return false
	}
	if s.First > 0 {
		if _, ok := s.pods[pod.UID]; !ok && len(s.pods) == s.First {
			return false
		}
		s.pods[pod.UID] = struct{}{}
	}
	return true
}
