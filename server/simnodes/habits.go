package simnodes

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// How long what kubelets and containers do takes in Pods that are like those of a real cluster, if nothing says more.
const (
	usualStart = 2 * time.Second // from the binding until a container runs: its volumes are mounted and its image is there
	usualProbe = time.Second     // until a probe has succeeded
	usualInit  = time.Second     // for an init container
	usualTask  = 5 * time.Second // for a container that ends by itself
	usualStop  = time.Second     // from SIGTERM to the end
)

// habits sets what a container does about which no script and no annotation says anything.
type habits func(*container)

// habits returns those of a new Pod, or nil.
func (n *Nodes) habits(pod *corev1.Pod) habits {
	if !n.options.Keep {
		return nil
	}
	return func(c *container) {
		if c.stop == nil {
			c.stop = Run{Wait(preStop(c.spec) + usualStop), Exit(terminatedCode)}
		}
		if len(c.runs) > 0 {
			return
		}
		run := Run{Wait(usualStart), Start()}
		switch f := n.fateOf(pod, c.spec); {
		case f != nil && f.pull != "":
			run = Run{Wait(usualStart), FailPull(f.pull)}
		case f != nil && f.exit != nil:
			if readyAfter(c.spec) > 0 {
				run = append(run, Unready())
			}
			run = append(run, Wait(f.after), *f.exit)
		case c.init:
			run = append(run, Wait(usualInit), Exit(0))
		case c.ends():
			run = append(run, Wait(usualTask), Exit(0))
		case f != nil:
			run = append(run, Unready())
		default:
			if wait := readyAfter(c.spec); wait > 0 {
				run = append(run, Wait(wait), Ready())
			}
		}
		c.runs = []Run{run, run[1:]} // what it needs is there when it starts again
	}
}

// readyAfter returns how long a container runs until it is ready.
func readyAfter(c *corev1.Container) (after time.Duration) {
	for _, probe := range []*corev1.Probe{c.StartupProbe, c.ReadinessProbe} {
		if probe == nil {
			continue
		}
		after = max(after, time.Duration(probe.InitialDelaySeconds)*time.Second) + usualProbe
		after += time.Duration(max(probe.SuccessThreshold-1, 0)*probe.PeriodSeconds) * time.Second
	}
	return after
}

var sleeping = regexp.MustCompile(`\bsleep +(\d+)\b`)

// preStop returns how long a container's preStop hook sleeps.
func preStop(c *corev1.Container) time.Duration {
	if c.Lifecycle == nil || c.Lifecycle.PreStop == nil {
		return 0
	}
	hook, seconds := c.Lifecycle.PreStop, int64(0)
	switch {
	case hook.Sleep != nil:
		seconds = hook.Sleep.Seconds
	case hook.Exec != nil:
		if match := sleeping.FindStringSubmatch(strings.Join(hook.Exec.Command, " ")); match != nil {
			seconds, _ = strconv.ParseInt(match[1], 10, 32) // digits
		}
	}
	return time.Duration(seconds) * time.Second
}

// fate is what has happened to containers that have something in common. Its zero value is that nothing is known.
type fate struct {
	good  bool          // to one of them, nothing bad
	pull  string        // why the image can't be pulled
	exit  *Step         // how it crashes
	after time.Duration // when it crashes
	// Otherwise it runs and is not ready.
}

// template identifies the containers that are made from the same lines: those of a container's name and image in Pods that a controller has made from
// the same template.
func template(pod *corev1.Pod, c *corev1.Container) string {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return ""
	}
	return string(owner.UID) + " " + pod.Labels["controller-revision-hash"] + " " + c.Name + " " + c.Image
}

// fatesOf returns what has happened to containers, by their template and by their image.
func fatesOf(pods []any, now time.Time) map[string]*fate {
	fates := map[string]*fate{}
	for _, object := range pods {
		pod, ok := object.(*corev1.Pod)
		if !ok {
			continue
		}
		note := func(c *corev1.Container, statuses []corev1.ContainerStatus) {
			for i := range statuses {
				if statuses[i].Name != c.Name {
					continue
				}
				if seen := seenOf(&statuses[i], now); seen != nil {
					join(fates, c.Image, fate{good: seen.pull == "", pull: seen.pull})
					join(fates, template(pod, c), *seen)
				}
			}
		}
		for i := range pod.Spec.InitContainers {
			note(&pod.Spec.InitContainers[i], pod.Status.InitContainerStatuses)
		}
		for i := range pod.Spec.Containers {
			note(&pod.Spec.Containers[i], pod.Status.ContainerStatuses)
		}
	}
	return fates
}

// join adds what has been seen. Good wins, since something else may then be wrong with the others, such as their nodes.
func join(fates map[string]*fate, key string, seen fate) {
	if was := fates[key]; key != "" && (was == nil || seen.good) {
		fates[key] = &seen
	}
}

// seenOf returns what has happened to a container, or nil if that is not clear yet.
func seenOf(c *corev1.ContainerStatus, now time.Time) *fate {
	switch waiting, running := c.State.Waiting, c.State.Running; {
	case running != nil && !c.Ready && now.Sub(running.StartedAt.Time) < patience:
		return nil
	case running != nil:
		return &fate{good: c.Ready}
	case c.State.Terminated != nil && c.State.Terminated.ExitCode == 0:
		return &fate{good: true}
	case waiting == nil:
		return nil
	case waiting.Reason == "CrashLoopBackOff" && c.LastTerminationState.Terminated != nil:
		last := c.LastTerminationState.Terminated
		exit := ExitWith(int(last.ExitCode), last.Reason, last.Message)
		return &fate{exit: &exit, after: min(max(last.FinishedAt.Sub(last.StartedAt.Time), 0), time.Minute)}
	case slices.Contains(noImage, waiting.Reason):
		_, message, _ := strings.Cut(waiting.Message, "ErrImagePull: ")
		return &fate{pull: cmp.Or(message, waiting.Message, waiting.Reason)}
	default:
		return nil
	}
}

// noImage are the reasons for which a container waits whose image can't be had.
var noImage = []string{"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable"}

// fateOf returns what is to be expected of a container of a new Pod, or nil if that is nothing bad.
func (n *Nodes) fateOf(pod *corev1.Pod, c *corev1.Container) *fate {
	for _, key := range []string{c.Image, template(pod, c)} {
		if f := n.fates[key]; f != nil && !f.good {
			return f
		}
	}
	return nil
}
