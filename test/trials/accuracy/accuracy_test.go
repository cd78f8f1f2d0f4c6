package accuracy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/sqube/sqube/server/servertest"
	"github.com/sqube/sqube/server/trial"
	"github.com/sqube/sqube/test/compare/differences"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/fakenode"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestAccuracy sets up the scenarios, copies the cluster, tries each change on the copy, makes it in the cluster, and compares.
func TestAccuracy(t *testing.T) {
	explained, err := differences.Read("differences.txt")
	harness.Must(t, err)
	c := newCluster(t)
	var played []*scenario
	for i := range all {
		if s := &all[i]; *upstream != "" || s.lasts <= quick {
			played = append(played, s)
		}
	}
	var settingUp sync.WaitGroup
	for _, s := range played {
		settingUp.Go(func() { c.setUp(t, s) })
	}
	settingUp.Wait()
	if t.Failed() {
		t.FailNow()
	}
	c.settled(t, played)
	for _, s := range played {
		if s.after != nil {
			c.must(t, s, "", s.after...)
		}
	}
	before := c.settled(t, played)
	file := filepath.Join(t.TempDir(), "copy.db")
	c.command(t, sqube.Binary(t), "copy", file)
	turns := make(chan struct{}, 2) // trials at once
	t.Run("scenarios", func(t *testing.T) {
		for _, s := range played {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				turns <- struct{}{}
				tried := c.try(t, s, file, before.uids())
				<-turns
				c.change(t, s)
				c.compare(t, s, tried, before.uids(), explained)
			})
		}
	})
}

// quick is how long a scenario lasts at most that is played in every test.
const quick = 10 * time.Second

// setUp makes what a scenario's change is made on.
func (c *cluster) setUp(t *testing.T, s *scenario) {
	joined := s.nodes
	if joined == nil {
		joined = two(s.name)
	}
	for _, o := range joined {
		labels := map[string]string{"scenario": s.name}
		for key, value := range o.Labels {
			labels[key] = value
		}
		o.Labels, o.Taints = labels, append(slices.Clone(o.Taints), corev1.Taint{Key: "scenario", Value: s.name, Effect: corev1.TaintEffectNoSchedule})
		fakenode.Join(t, c.config, o)
	}
	if _, err := c.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name}}, metav1.CreateOptions{}); err != nil {
		t.Errorf("%s: %v", s.name, err)
		return
	}
	for deadline := time.Now().Add(harness.Patience); ; time.Sleep(100 * time.Millisecond) {
		_, err := c.CoreV1().ServiceAccounts(s.name).Get(t.Context(), "default", metav1.GetOptions{})
		if err == nil {
			break
		}
		if !apierrors.IsNotFound(err) || time.Now().After(deadline) {
			t.Errorf("%s: %v", s.name, err)
			return
		}
	}
	for _, manifest := range []string{s.setup, s.more} {
		if manifest != "" {
			c.must(t, s, manifest, "apply", "--server-side", "-f", "-")
		}
		if s.more != "" {
			c.must(t, s, "", "wait", "--for=condition=Established", "customresourcedefinition", "--all")
		}
	}
}

// must runs kubectl, which must succeed, to set up a scenario.
func (c *cluster) must(t *testing.T, s *scenario, input string, args ...string) {
	if out, err := c.kubectl(t, input, args...); err != nil {
		t.Errorf("set up %s: kubectl %s: %v: %s", s.name, strings.Join(args, " "), err, out)
	}
}

// settled waits until nothing of the scenarios changes any more, and returns all objects.
func (c *cluster) settled(t *testing.T, played []*scenario) state {
	t.Helper()
	var last state
	var since time.Time
	for deadline := time.Now().Add(2 * harness.Patience); ; time.Sleep(time.Second) {
		now, err := read(t.Context(), c.Discovery(), c.dynamic)
		harness.Must(t, err)
		var moving []string
		for _, s := range played {
			x, y := outcomeOf(s, last, nil, time.Time{}), outcomeOf(s, now, nil, time.Time{})
			if text(x) != text(y) {
				moving = append(moving, s.name)
			}
		}
		if last = now; len(moving) > 0 {
			since = time.Now()
		} else if time.Since(since) > still {
			return now
		}
		if time.Now().After(deadline) {
			t.Fatalf("these do not settle: %s", moving)
		}
	}
}

// still is how long nothing must change until a scenario has come to its end.
const still = 4 * time.Second

// kubectl runs kubectl in the cluster, and returns all that it prints.
func (c *cluster) kubectl(t *testing.T, input string, args ...string) (string, error) {
	var printed bytes.Buffer
	cmd := exec.CommandContext(t.Context(), sqube.KubectlBinary(t), args...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = c.env, strings.NewReader(strings.TrimPrefix(strings.TrimSpace(input), "---")), &printed, &printed
	err := cmd.Run()
	return strings.TrimSpace(printed.String()), err
}

// command runs a program that must succeed.
func (c *cluster) command(t *testing.T, program string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = c.env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v: %s", program, strings.Join(args, " "), err, out)
	}
}

// change makes a scenario's change.
func (c *cluster) change(t *testing.T, s *scenario) {
	t.Helper()
	out, err := "", error(nil)
	if s.manifest != "" {
		out, err = c.kubectl(t, s.manifest, "apply", "--server-side", "-f", "-")
	} else {
		out, err = c.kubectl(t, "", s.kubectl...)
	}
	t.Logf("the change: %v: %s", err, out)
}

// tried is what a trial has come to.
type tried struct {
	result  trial.Result
	outcome outcome
}

// try tries a scenario's change on a copy.
func (c *cluster) try(t *testing.T, s *scenario, file string, before map[string]bool) *tried {
	t.Helper()
	dir := t.TempDir()
	manifest, saved := filepath.Join(dir, "change.yaml"), filepath.Join(dir, "saved.db")
	args := []string{"try", "--from", file, "--save", saved, "-o", "json"}
	if s.manifest != "" {
		harness.Must(t, os.WriteFile(manifest, []byte(s.manifest), 0o600))
		args = append(args, "-f", manifest)
	} else {
		args = append(args, "--", sqube.KubectlBinary(t))
		args = append(args, s.kubectl...)
	}
	cmd := exec.CommandContext(t.Context(), sqube.Binary(t), args...)
	var printed, said bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = c.env, &printed, &said
	begin := time.Now()
	err := cmd.Run()
	t.Logf("tried in %s: %v %s", time.Since(begin).Round(time.Millisecond), err, said.String())
	r := &tried{}
	if err := json.Unmarshal(printed.Bytes(), &r.result); err != nil {
		t.Fatalf("sqube try: %v: %s%s", err, printed.String(), said.String())
	}
	copied, err := servertest.Start(servertest.Options{From: saved, NoControllers: true})
	harness.Must(t, err)
	defer func() {
		if err := copied.Stop(); err != nil {
			t.Error(err)
		}
	}()
	client, err := kubernetes.NewForConfig(copied.Config)
	harness.Must(t, err)
	objects, err := dynamic.NewForConfig(copied.Config)
	harness.Must(t, err)
	end, err := read(t.Context(), client.Discovery(), objects)
	harness.Must(t, err)
	r.outcome = outcomeOf(s, end, before, r.result.Tried.Begin)
	return r
}

// compare waits until the cluster has come to the end that was tried, and fails if that does not happen.
func (c *cluster) compare(t *testing.T, s *scenario, tried *tried, before map[string]bool, explained []*differences.Difference) {
	t.Helper()
	begin := time.Now()
	var last outcome
	for since := begin; time.Since(begin) < s.lasts || time.Since(since) < still; time.Sleep(500 * time.Millisecond) {
		now, err := read(context.WithoutCancel(t.Context()), c.Discovery(), c.dynamic)
		harness.Must(t, err)
		if outcome := outcomeOf(s, now, before, time.Time{}); text(outcome) != text(last) {
			last, since = outcome, time.Now()
		}
		if time.Since(begin) > s.lasts+harness.Patience {
			t.Logf("it does not come to rest")
			break
		}
	}
	for _, d := range diff(s.name, last, tried.outcome, explained) {
		t.Error(d)
	}
}

// diff returns what differs between the outcomes of a scenario in a cluster and in a trial, and is not explained.
func diff(name string, made, tried outcome, explained []*differences.Difference) []string {
	titles := map[string]bool{}
	for title := range made {
		titles[title] = true
	}
	for title := range tried {
		titles[title] = true
	}
	var found []string
	for title := range titles {
		x, here := made[title]
		y, there := tried[title]
		paths := []string{"missing"} // from the trial
		if here && there {
			paths = differing(x, y)
		} else if there {
			paths = []string{"added"}
		}
		for _, path := range paths {
			if !explain(explained, name+"/"+title, path) {
				found = append(found, fmt.Sprintf("%s/%s [%s]: made %s\n\ttried %s", name, title, path, at(x, path), at(y, path)))
			}
		}
	}
	slices.Sort(found)
	return found
}

// explain reports whether a difference is on purpose.
func explain(all []*differences.Difference, title, path string) bool {
	for _, d := range all {
		for i := range d.Fields {
			if f := &d.Fields[i]; d.Matches(title) && (path == f.Name || strings.HasPrefix(path, f.Name+".")) {
				f.Used = true
				return true
			}
		}
	}
	return false
}
