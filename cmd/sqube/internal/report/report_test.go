package report

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/sqube/sqube/server/trial"
)

func seconds(n int) trial.Duration { return trial.Duration(time.Duration(n) * time.Second) }

func of(kind, name string) trial.Reference {
	return trial.Reference{Kind: kind, Namespace: "shop", Name: name}
}

// example is a rollout that does not fit.
func example() *trial.Result {
	return &trial.Result{
		Verdict: trial.NotAtRest,
		Reasons: []string{"2 Pods such as web-2-x are pending: 0/3 nodes are available: 3 Insufficient cpu.", "Deployment shop/web: 1 of 3 updated, 3 ready."},
		Tried:   trial.Tried{Source: "prod", Nodes: 3, User: "jane", Change: "apply -f web.yaml", For: seconds(600)},
		Tree: []*trial.Object{{
			Reference: of("Deployment", "web"), Operation: trial.Changed, By: []string{"jane", "deployment-controller"}, State: "1 of 3 updated, 3 ready",
			Diff: []trial.Difference{{Path: ".spec.template.spec.containers[name=web].image", From: `"web:1"`, To: `"web:2"`}},
			Caused: []*trial.Object{{
				Reference: of("ReplicaSet", "web-2"), Operation: trial.Created, By: []string{"deployment-controller"}, State: "1 of 3 ready",
				Caused: []*trial.Object{
					{Reference: of("Pod", "web-2-a"), Operation: trial.Created, By: []string{"replicaset-controller", "kubelet"}},
					{Reference: of("Pod", "web-2-x"), Operation: trial.Created, By: []string{"replicaset-controller"}, State: "Pending", Alike: 1},
				},
			}},
		}},
		Timeline: []trial.Moment{
			{At: seconds(0), Object: of("Deployment", "web"), Text: "0 of 3 updated, 3 ready"},
			{At: seconds(3), Object: of("Deployment", "web"), Text: "1 of 3 updated, 3 ready"},
		},
		Pending: []trial.PendingPod{{Pod: of("Pod", "web-2-x"), Alike: 1, Since: seconds(1), Reason: "0/3 nodes are available: 3 Insufficient cpu."}},
		Events: []trial.Event{
			{Type: "Warning", Reason: "FailedScheduling", Message: "0/3 nodes are available: 3 Insufficient cpu.", Object: of("Pod", "web-2-x")},
			{Type: "Normal", Reason: "ScalingReplicaSet", Object: of("Deployment", "web")},
		},
		NotRun: []trial.NotRun{{Kind: "widget.example.com", Objects: 1, Why: "no controller of this kind ran"}},
	}
}

// What people read first is what they asked for; the verdict is the last line.
func TestText(t *testing.T) {
	const want = `Tried apply -f web.yaml as jane on a copy of prod with 3 simulated nodes, for
10:00.

What the change does
~ Deployment shop/web            1 of 3 updated, 3 ready  jane and 1 other
        .spec.template.spec.containers[name=web].image: "web:1" → "web:2"
+   ReplicaSet web-2             1 of 3 ready             deployment-controller
+     Pod web-2-a                                         replicaset-controller
+     Pod web-2-x and 1 like it  Pending                  replicaset-controller

Time line
    0:00  Deployment shop/web  0 of 3 updated, 3 ready
    0:03                       1 of 3 updated, 3 ready

Pending at the end
  2 Pods such as shop/web-2-x, since 0:01: 0/3 nodes are available: 3
  Insufficient cpu.

New in Events
  normal: ScalingReplicaSet

Not simulated
  1 kind is managed by controllers that did not run: widget.example.com (no
  controller of this kind ran)

Not at rest after 10:00: 2 Pods such as web-2-x are pending: 0/3 nodes are
available: 3 Insufficient cpu. (and 1 more reason)
`
	text := &strings.Builder{}
	if err := Text(text, example(), 78); err != nil {
		t.Fatal(err)
	}
	if text.String() != want {
		t.Errorf("the text is\n%s\nand not\n%s", text, want)
	}
}

// Nothing that a cluster says can do something to a terminal, or become markup.
func TestHostile(t *testing.T) {
	const hostile = "\x1b[2Jx\n```\n</details>@someone\u202e"
	r := example()
	r.Reasons[0], r.Pending[0].Reason, r.Events[0].Message, r.Timeline[0].Text = hostile, hostile, hostile+"2", hostile
	r.Tree[0].Name, r.Tree[0].State, r.Tree[0].By[0], r.Tree[0].Diff[0].To, r.Tree[0].Diff[0].Path = hostile, hostile, hostile, hostile, hostile
	r.Warnings, r.NotRun[0].Kind, r.Tried.Change, r.Tried.Source = []string{hostile}, hostile, hostile, hostile
	r.Timeline[0].Object.Name = hostile
	r.Refused = []trial.Refusal{{Message: hostile}}
	r.Held = []trial.Hold{{Kind: "policy", By: hostile, Message: hostile, Object: of("Job", hostile)}}
	r.Fights = []trial.Fight{{Object: of("Job", hostile), Path: hostile, By: []string{hostile}}}
	r.Evicted = []trial.Eviction{{Pod: of("Pod", hostile), Reason: hostile}}
	r.Webhooks = []trial.Webhook{{Name: hostile}}
	for name, print := range map[string]func(*strings.Builder) error{
		"text":     func(out *strings.Builder) error { return Text(out, r, 0) },
		"narrow":   func(out *strings.Builder) error { return Text(out, r, 20) },
		"markdown": func(out *strings.Builder) error { return Markdown(out, r) },
	} {
		text := &strings.Builder{}
		if err := print(text); err != nil {
			t.Fatal(err)
		}
		if i := strings.IndexFunc(text.String(), func(c rune) bool { return c != '\n' && !unicode.IsGraphic(c) }); i >= 0 {
			t.Errorf("the %s has %q", name, text.String()[max(0, i-20):i+1])
		}
		if name != "markdown" {
			continue
		}
		fence := ""
		for line := range strings.Lines(text.String()) {
			line = strings.TrimSuffix(line, "\n")
			switch ticks := line[:len(line)-len(strings.TrimLeft(line, "`"))]; {
			case fence == "" && len(ticks) >= 3:
				fence = ticks
			case fence != "" && line == fence:
				fence = ""
			case fence != "" && len(ticks) >= len(fence):
				t.Errorf("this line ends the code: %q", line)
			case fence == "" && strings.Contains(line, "someone"):
				t.Errorf("this line is not in code: %q", line)
			}
		}
	}
}

// A result is readable however much there is in it.
func TestMuch(t *testing.T) {
	r := example()
	for i := range 5000 {
		name := fmt.Sprintf("%d-%s", i, strings.Repeat("x", 200))
		r.Tree = append(r.Tree, &trial.Object{Reference: of("ConfigMap", name), Operation: trial.Created, By: []string{"jane"}})
		r.Pending = append(r.Pending, trial.PendingPod{Pod: of("Pod", name), Reason: name})
		r.Events = append(r.Events, trial.Event{Type: "Warning", Message: name})
		r.Timeline = append(r.Timeline, trial.Moment{Object: of("Job", name), Text: name})
	}
	for name, print := range map[string]func(*strings.Builder) error{
		"text":     func(out *strings.Builder) error { return Text(out, r, 100) },
		"markdown": func(out *strings.Builder) error { return Markdown(out, r) },
	} {
		text := &strings.Builder{}
		if err := print(text); err != nil {
			t.Fatal(err)
		}
		if text.Len() > mostMarkdown {
			t.Errorf("the %s has %d bytes", name, text.Len())
		}
	}
}
