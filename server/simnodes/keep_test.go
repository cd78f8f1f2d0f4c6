package simnodes

import (
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// longAgo is when Pods of copies have started that have had the time to become ready.
var longAgo = metav1.NewTime(birth.Add(-time.Hour))

// reportedPod is a Pod of a copy with a container as its kubelet has reported it.
func reportedPod(phase corev1.PodPhase, policy corev1.RestartPolicy, main corev1.ContainerStatus) *corev1.Pod {
	main.Name, main.Image, main.ImageID = "main", "web:1", "sha256:1"
	ready := corev1.ConditionFalse
	if main.Ready {
		ready = corev1.ConditionTrue
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "1", OwnerReferences: []metav1.OwnerReference{{UID: "set", Controller: new(true)}}},
		Spec: corev1.PodSpec{
			RestartPolicy: policy, TerminationGracePeriodSeconds: new(int64(30)),
			Containers: []corev1.Container{{Name: "main", Image: "web:1", ReadinessProbe: &corev1.Probe{InitialDelaySeconds: 3}}},
		},
		Status: corev1.PodStatus{
			Phase: phase, StartTime: &longAgo, PodIP: "10.1.2.3", PodIPs: []corev1.PodIP{{IP: "10.1.2.3"}, {IP: "fd00::1"}}, QOSClass: corev1.PodQOSBurstable,
			// An old kubelet knows fewer conditions.
			Conditions: []corev1.PodCondition{
				{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}, {Type: corev1.ContainersReady, Status: ready, Message: "as it was"},
				{Type: corev1.PodReady, Status: ready, Message: "as it was"}, {Type: "example.com/gate", Status: corev1.ConditionTrue},
			},
			ContainerStatuses: []corev1.ContainerStatus{main},
		},
	}
}

func runningSince(t metav1.Time, ready bool) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: t}}, Ready: ready, Started: new(true), ContainerID: "containerd://1",
	}
}

func waitingFor(reason, message string) corev1.ContainerStatus {
	return corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}
}

func crashing() corev1.ContainerStatus {
	status := waitingFor("CrashLoopBackOff", "back-off 5m0s")
	status.RestartCount, status.ContainerID = 7, "containerd://7"
	status.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
		ExitCode: 3, Reason: "Error", Message: "no database", StartedAt: longAgo, FinishedAt: metav1.NewTime(longAgo.Add(4 * time.Second)),
	}
	return status
}

// TestKeep takes Pods of a copy over. What is at rest stays exactly as it was, until it is deleted; what is on the way goes on.
func TestKeep(t *testing.T) {
	young := metav1.NewTime(birth.Add(-time.Second))
	nodes := &Nodes{options: Options{Keep: true}}
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want []string // nil: nothing happens
	}{
		"ready":              {pod: reportedPod(corev1.PodRunning, corev1.RestartPolicyAlways, runningSince(longAgo, true))},
		"not ready for long": {pod: reportedPod(corev1.PodRunning, corev1.RestartPolicyAlways, runningSince(longAgo, false))},
		"crash loop":         {pod: reportedPod(corev1.PodRunning, corev1.RestartPolicyAlways, crashing())},
		"no image":           {pod: reportedPod(corev1.PodPending, corev1.RestartPolicyAlways, waitingFor("ImagePullBackOff", "Back-off"))},
		"no configuration":   {pod: reportedPod(corev1.PodPending, corev1.RestartPolicyAlways, waitingFor("CreateContainerConfigError", "it would run as root"))},
		"starts for too long": {
			pod: reportedPod(corev1.PodPending, corev1.RestartPolicyAlways, waitingFor("ContainerCreating", "")),
		},
		"not ready yet": {
			pod: reportedPod(corev1.PodRunning, corev1.RestartPolicyAlways, runningSince(young, false)), want: []string{"3s Running main:running,ready"},
		},
		"a task that runs": {
			pod: reportedPod(corev1.PodRunning, corev1.RestartPolicyNever, runningSince(longAgo, true)), want: []string{"1m0s Succeeded main:Completed 0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLife(test.pod, birth, func(string, bool) ([]Run, Run) { return nil, nil }, nodes.habits(test.pod))
			last, story := describe(test.pod.Status), []string(nil)
			for now := birth; ; {
				next, more := l.advance(now)
				status := l.status(test.pod.Status, now)
				if is := describe(status); is != last {
					story, last = append(story, now.Sub(birth).String()+" "+is), is
				} else if test.want == nil && !reflect.DeepEqual(status, test.pod.Status) {
					t.Errorf("the status was\n%+v\nand is\n%+v", test.pod.Status, status)
				}
				if !more {
					break
				}
				now = next
			}
			if !slices.Equal(story, test.want) {
				t.Errorf("it goes on as %q instead of %q", story, test.want)
			}
			l.terminate(birth.Add(time.Hour), l.grace())
			if l.advance(birth.Add(time.Hour + usualStop)); !l.over {
				t.Error("it does not end when it is deleted")
			}
		})
	}
}

// TestKeepHeld looks for what a container of a copy lacks that could not be created: it starts when that is there, unless that was not the reason.
func TestKeepHeld(t *testing.T) {
	for _, test := range []struct {
		message string
		want    bool // it starts
	}{{`secret "keys" not found`, true}, {"it would run as root", false}} {
		pod := reportedPod(corev1.PodPending, corev1.RestartPolicyAlways, waitingFor("CreateContainerConfigError", test.message))
		l := newLife(pod, birth, func(string, bool) ([]Run, Run) { return nil, nil }, (&Nodes{options: Options{Keep: true}}).habits(pod))
		if test.want {
			l.find(lacks{containers: map[string]string{"main": test.message}}, birth)
		}
		if is := l.status(pod.Status, birth); !reflect.DeepEqual(is, pod.Status) {
			t.Errorf("the status was\n%+v\nand is\n%+v", pod.Status, is)
		}
		l.find(lacks{}, birth)
		l.advance(birth.Add(time.Minute))
		if is := l.status(pod.Status, birth); is.ContainerStatuses[0].Ready != test.want {
			t.Errorf("a container that waits for %q is then %+v", test.message, is.ContainerStatuses[0])
		}
	}
}

// TestKeepGate opens and closes a readiness gate of a Pod of a copy, which otherwise stays as it was.
func TestKeepGate(t *testing.T) {
	pod := reportedPod(corev1.PodRunning, corev1.RestartPolicyAlways, runningSince(longAgo, true))
	pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/gate"}}
	l := newLife(pod, birth, func(string, bool) ([]Run, Run) { return nil, nil }, (&Nodes{options: Options{Keep: true}}).habits(pod))
	if is := l.status(pod.Status, birth); !reflect.DeepEqual(is, pod.Status) {
		t.Errorf("the status was\n%+v\nand is\n%+v", pod.Status, is)
	}
	closed := pod.Status.DeepCopy()
	condition(closed, "example.com/gate").Status = corev1.ConditionFalse
	is := l.status(*closed, birth)
	if c := condition(&is, corev1.PodReady); c.Status != corev1.ConditionFalse || c.Reason != "ReadinessGatesNotReady" {
		t.Errorf("the Pod is ready: %+v", c)
	}
}

// TestHabits compares how new Pods start in a copy, in which others have done so before.
func TestHabits(t *testing.T) {
	for name, test := range map[string]struct {
		before *corev1.Pod
		change func(*corev1.Pod)
		want   []string
	}{
		"probes": {want: []string{"0s Pending main:ContainerCreating", "2s Running main:running", "6s Running main:running,ready"}},
		"a startup probe, too": {
			change: func(p *corev1.Pod) { p.Spec.Containers[0].StartupProbe = &corev1.Probe{InitialDelaySeconds: 10} },
			want:   []string{"0s Pending main:ContainerCreating", "2s Running main:running", "14s Running main:running,ready"},
		},
		"a task": {
			change: func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever },
			want:   []string{"0s Pending main:ContainerCreating", "2s Running main:running,ready", "7s Succeeded main:Completed 0"},
		},
		"the others crash": {
			before: reportedPod(corev1.PodRunning, corev1.RestartPolicyAlways, crashing()),
			want: []string{
				"0s Pending main:ContainerCreating", "2s Running main:running", "6s Running main:running restarts 1",
				"10s Running main:CrashLoopBackOff restarts 2",
			},
		},
		"others crash, of an older template": {
			before: reportedPod(corev1.PodRunning, corev1.RestartPolicyAlways, crashing()),
			change: func(p *corev1.Pod) { p.OwnerReferences[0].UID = "next" },
			want:   []string{"0s Pending main:ContainerCreating", "2s Running main:running", "6s Running main:running,ready"},
		},
		"the others are not ready": {
			before: reportedPod(corev1.PodRunning, corev1.RestartPolicyAlways, runningSince(longAgo, false)),
			want:   []string{"0s Pending main:ContainerCreating", "2s Running main:running"},
		},
		"nobody can pull the image": {
			before: reportedPod(corev1.PodPending, corev1.RestartPolicyAlways, waitingFor("ImagePullBackOff", "Back-off pulling image: ErrImagePull: no such tag")),
			change: func(p *corev1.Pod) { p.OwnerReferences = nil },
			want:   []string{"0s Pending main:ContainerCreating", "2s Pending main:ErrImagePull", "3s Pending main:ImagePullBackOff", "12s Pending main:ErrImagePull", "13s Pending main:ImagePullBackOff"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := &Nodes{options: Options{Keep: true}}
			if test.before != nil {
				nodes.fates = fatesOf([]any{test.before}, birth)
			}
			pod := reportedPod("", corev1.RestartPolicyAlways, corev1.ContainerStatus{})
			pod.Status = corev1.PodStatus{}
			if test.change != nil {
				test.change(pod)
			}
			l := newLife(pod, birth, func(string, bool) ([]Run, Run) { return nil, nil }, nodes.habits(pod))
			var story []string
			for now, last := birth, ""; now.Before(birth.Add(20 * time.Second)); {
				next, more := l.advance(now)
				if is := describe(l.status(pod.Status, now)); is != last {
					story, last = append(story, now.Sub(birth).String()+" "+is), is
				}
				if now = next; !more {
					break
				}
			}
			if !slices.Equal(story, test.want) {
				t.Errorf("it starts as %q instead of %q", story, test.want)
			}
		})
	}
}

func TestPreStop(t *testing.T) {
	for _, test := range []struct {
		hook *corev1.LifecycleHandler
		want time.Duration
	}{
		{nil, 0}, {&corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{}}, 0},
		{&corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 7}}, 7 * time.Second},
		{&corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"sleep", "15"}}}, 15 * time.Second},
		{&corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"sh", "-c", "sleep 20 && nginx -s quit"}}}, 20 * time.Second},
	} {
		if got := preStop(&corev1.Container{Lifecycle: &corev1.Lifecycle{PreStop: test.hook}}); got != test.want {
			t.Errorf("%+v takes %s instead of %s", test.hook, got, test.want)
		}
	}
}
