package simnodes

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/harness"
)

var birth = time.Date(2030, time.January, 1, 0, 0, 0, 0, time.UTC)

// TestLife lets Pods live without a server, and compares what their status says over time.
func TestLife(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	for name, test := range map[string]struct {
		policy  corev1.RestartPolicy
		change  func(*corev1.PodSpec)
		scripts []Script
		deleted time.Duration // when the Pod is deleted; 0: never
		until   time.Duration
		want    []string
	}{
		"default": {until: time.Hour, want: []string{"0s Running main:running,ready"}},
		"default of Jobs": {policy: corev1.RestartPolicyNever, until: time.Hour, want: []string{
			"0s Running main:running,ready", "1s Succeeded main:Completed 0",
		}},
		"readiness": {
			scripts: []Script{{Runs: []Run{{Wait(2 * time.Second), Start(), Wait(time.Second), Ready(), Wait(time.Minute), Unready()}}}}, until: time.Hour,
			want: []string{"0s Pending main:ContainerCreating", "2s Running main:running", "3s Running main:running,ready", "1m3s Running main:running"},
		},
		"crash loop": {
			scripts: []Script{{Runs: []Run{{Wait(time.Second), ExitWith(137, "OOMKilled", "")}}}}, until: 3 * time.Minute,
			want: []string{
				"0s Running main:running,ready", "1s Running main:running,ready restarts 1",
				"2s Running main:CrashLoopBackOff restarts 2", "12s Running main:running,ready restarts 2",
				"13s Running main:CrashLoopBackOff restarts 3", "33s Running main:running,ready restarts 3",
				"34s Running main:CrashLoopBackOff restarts 4", "1m14s Running main:running,ready restarts 4",
				"1m15s Running main:CrashLoopBackOff restarts 5", "2m35s Running main:running,ready restarts 5",
				"2m36s Running main:CrashLoopBackOff restarts 6",
			},
		},
		"fails once, then succeeds": {
			policy: corev1.RestartPolicyOnFailure, scripts: []Script{{Runs: []Run{{Wait(time.Second), Exit(1)}, {Wait(time.Second), Exit(0)}}}}, until: time.Hour,
			want: []string{"0s Running main:running,ready", "1s Running main:running,ready restarts 1", "2s Succeeded main:Completed 0 restarts 1"},
		},
		"image": {
			scripts: []Script{{Runs: []Run{{FailPull("")}, {FailPull("")}, {}}}}, until: time.Hour,
			want: []string{
				"0s Pending main:ErrImagePull", "1s Pending main:ImagePullBackOff", "10s Pending main:ErrImagePull", "11s Pending main:ImagePullBackOff",
				"30s Running main:running,ready",
			},
		},
		"liveness": {
			scripts: []Script{{Runs: []Run{{Wait(time.Minute), FailLiveness()}, {}}}}, until: time.Hour,
			want: []string{"0s Running main:running,ready", "1m0s Running main:running,ready restarts 1"},
		},
		"eviction": {
			scripts: []Script{{Runs: []Run{{Wait(time.Minute), Evict("out of memory")}}}}, until: time.Hour,
			want: []string{"0s Running main:running,ready", "1m0s Failed Evicted main:Error 137"},
		},
		"deadline": {
			change: func(spec *corev1.PodSpec) { spec.ActiveDeadlineSeconds = new(int64(60)) }, until: time.Hour,
			want: []string{"0s Running main:running,ready", "1m0s Failed DeadlineExceeded main:Error 143"},
		},
		"deletion": {
			scripts: []Script{{Stop: Run{Wait(5 * time.Second), Exit(0)}}}, deleted: time.Minute, until: time.Hour,
			want: []string{"0s Running main:running,ready", "1m5s Succeeded main:Completed 0"},
		},
		"deletion with too little grace": {
			scripts: []Script{{Stop: Run{Wait(time.Hour)}}}, deleted: time.Minute, until: 2 * time.Hour,
			want: []string{"0s Running main:running,ready", "1m30s Failed main:Error 137"},
		},
		"init containers and sidecars": {
			policy: corev1.RestartPolicyNever,
			change: func(spec *corev1.PodSpec) {
				spec.InitContainers = []corev1.Container{{Name: "first"}, {Name: "beside", RestartPolicy: &always, StartupProbe: &corev1.Probe{}}}
			},
			scripts: []Script{
				{Container: "first", Runs: []Run{{Wait(time.Second), Exit(0)}}},
				{Container: "beside", Runs: []Run{{Wait(time.Second), Ready()}}, Stop: Run{Wait(time.Second), Exit(0)}},
				{Runs: []Run{{Wait(time.Second), Exit(3)}}},
			},
			until: time.Hour,
			want: []string{
				"0s Pending first:running beside:PodInitializing main:PodInitializing",
				"1s Pending first:Completed 0 beside:running main:PodInitializing",
				"2s Running first:Completed 0 beside:running,ready main:running,ready",
				"3s Running first:Completed 0 beside:running,ready main:Error 3",
				"4s Failed first:Completed 0 beside:Completed 0 main:Error 3",
			},
		},
		"failed init container": {
			policy:  corev1.RestartPolicyNever,
			change:  func(spec *corev1.PodSpec) { spec.InitContainers = []corev1.Container{{Name: "first"}} },
			scripts: []Script{{Container: "first", Runs: []Run{{Wait(time.Second), Exit(1)}}}},
			until:   time.Hour,
			want:    []string{"0s Pending first:running main:PodInitializing", "1s Failed first:Error 1 main:PodInitializing"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{
				RestartPolicy: test.policy, TerminationGracePeriodSeconds: new(int64(30)), Containers: []corev1.Container{{Name: "main"}},
			}}
			if pod.Spec.RestartPolicy == "" {
				pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
			}
			if test.change != nil {
				test.change(&pod.Spec)
			}
			if got := story(t, pod, test.scripts, test.deleted, test.until); !slices.Equal(got, test.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
}

// TestAdopt lets another node's process take over a Pod, and checks that its containers go on.
func TestAdopt(t *testing.T) {
	run := Run{Wait(time.Second), Start(), Wait(time.Second), Ready(), Wait(time.Minute), Exit(1)}
	scripts := func(container string, _ bool) ([]Run, Run) {
		if container == "first" {
			return nil, nil
		}
		return []Run{run}, nil
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyAlways, InitContainers: []corev1.Container{{Name: "first"}}, Containers: []corev1.Container{{Name: "main"}},
	}}
	before := newLife(pod, birth, scripts, nil)
	before.advance(birth.Add(10 * time.Second))
	pod.Status = before.status(pod.Status, birth.Add(10*time.Second))

	after := newLife(pod, birth.Add(20*time.Second), scripts, nil)
	next, _ := after.advance(birth.Add(20 * time.Second))
	if is := after.status(pod.Status, birth.Add(20*time.Second)); !reflect.DeepEqual(is, pod.Status) {
		t.Errorf("the status was\n%+v\nand is\n%+v", pod.Status, is)
	}
	if want := birth.Add(62 * time.Second); !next.Equal(want) {
		t.Errorf("the container ends at %v instead of %v", next, want)
	}
}

// story returns the statuses of a Pod over time.
func story(t *testing.T, pod *corev1.Pod, scripts []Script, deleted, until time.Duration) (story []string) {
	t.Helper()
	l := newLife(pod, birth, func(container string, init bool) ([]Run, Run) {
		for _, script := range scripts {
			checked, err := newScripted(script)
			harness.Must(t, err)
			if checked.selects(pod, container, init) {
				return script.Runs, script.Stop
			}
		}
		return nil, nil
	}, nil)
	last := ""
	for now := birth; ; {
		if deleted > 0 && !now.Before(birth.Add(deleted)) {
			l.terminate(now, l.grace())
		}
		next, more := l.advance(now)
		if is := describe(l.status(pod.Status, now)); is != last {
			story, last = append(story, fmt.Sprint(now.Sub(birth), " ", is)), is
		}
		if at := birth.Add(deleted); deleted > 0 && now.Before(at) && (!more || next.After(at)) {
			next, more = at, true
		}
		if !more || next.Sub(birth) >= until {
			return story
		}
		now = next
	}
}

func describe(status corev1.PodStatus) string {
	text := []string{string(status.Phase)}
	if status.Reason != "" {
		text = append(text, status.Reason)
	}
	for _, c := range slices.Concat(status.InitContainerStatuses, status.ContainerStatuses) {
		is := "running"
		switch {
		case c.State.Waiting != nil:
			is = c.State.Waiting.Reason
		case c.State.Terminated != nil:
			is = fmt.Sprint(c.State.Terminated.Reason, " ", c.State.Terminated.ExitCode)
		case c.Ready:
			is += ",ready"
		}
		if c.RestartCount > 0 {
			is += fmt.Sprint(" restarts ", c.RestartCount)
		}
		text = append(text, c.Name+":"+is)
	}
	return strings.Join(text, " ")
}
