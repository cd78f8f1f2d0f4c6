package simnodes

import (
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/harness"
)

func TestAnnotations(t *testing.T) {
	pod := func(annotations map[string]string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}
	}
	all := pod(map[string]string{
		RunAnnotation:            "wait 5s; log no database, 100%; exit 1\nstart; ready; unready; evict out of memory\nfail-liveness; exit 137 OOMKilled too big\nfail-pull not found\n",
		RunAnnotation + "-first": "exit 0",
		StopAnnotation:           "wait 2s; exit 0",
	})
	runs, stop := annotated(all, "main", false)
	want := []Run{
		{Wait(5 * time.Second), Log("no database, 100%%"), Exit(1)}, {Start(), Ready(), Unready(), Evict("out of memory")},
		{FailLiveness(), ExitWith(137, "OOMKilled", "too big")}, {FailPull("not found")},
	}
	if !reflect.DeepEqual(runs, want) || !reflect.DeepEqual(stop, Run{Wait(2 * time.Second), Exit(0)}) {
		t.Errorf("the annotations mean %v and %v", runs, stop)
	}
	if runs, _ := annotated(all, "first", true); !reflect.DeepEqual(runs, []Run{{Exit(0)}}) {
		t.Errorf("the annotation of a container means %v", runs)
	}
	if runs, stop := annotated(all, "second", true); runs != nil || stop != nil {
		t.Errorf("the annotations of an init container mean %v and %v", runs, stop)
	}
	for _, wrong := range []string{"wait", "wait long", "exit", "exit one", "ready soon", "nonsense", "start; fail-pull"} {
		if runs, _ := annotated(pod(map[string]string{RunAnnotation: wrong}), "main", false); len(runs) != 1 || runs[0][0].kind != stepFailPull || runs[0][0].message == "" {
			t.Errorf("%q means %v", wrong, runs)
		}
	}
}

// TestScripts checks which script a container gets.
func TestScripts(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "1", Labels: map[string]string{"app": "web"}}}
	for _, test := range []struct {
		script    Script
		container string
		init      bool
		want      bool
	}{
		{script: Script{}, container: "main", want: true},
		{script: Script{}, container: "main", init: true, want: false},
		{script: Script{Container: "main"}, container: "main", init: true, want: true},
		{script: Script{Container: "main"}, container: "other", want: false},
		{script: Script{Namespace: "shop", Name: "web-*", Labels: "app in (web)"}, container: "main", want: true},
		{script: Script{Namespace: "other"}, container: "main", want: false},
		{script: Script{Name: "db-*"}, container: "main", want: false},
		{script: Script{Labels: "app!=web"}, container: "main", want: false},
		{script: Script{Match: func(p *corev1.Pod) bool { return p.Name == "other" }}, container: "main", want: false},
	} {
		checked, err := newScripted(test.script)
		harness.Must(t, err)
		if got := checked.selects(pod, test.container, test.init); got != test.want {
			t.Errorf("%+v selects %s: %t", test.script, test.container, got)
		}
	}
	first, err := newScripted(Script{First: 1})
	harness.Must(t, err)
	other := pod.DeepCopy()
	other.UID = "2"
	if !first.selects(pod, "main", false) || first.selects(other, "main", false) || !first.selects(pod, "second", false) {
		t.Error("a script for the first Pod does not select all of its containers, or selects another Pod")
	}
	for _, wrong := range []Script{
		{Labels: "=="}, {Name: "["}, {Runs: []Run{{Start(), FailPull("")}}}, {Runs: []Run{{Exit(0), Start()}}}, {Stop: Run{Start()}},
	} {
		if _, err := newScripted(wrong); err == nil {
			t.Errorf("%+v is accepted", wrong)
		}
	}
}
