package accuracy

import (
	"bytes"
	"context"
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

	"github.com/sqube/sqube/test/compare/differences"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestAccuracy sets up the scenarios, copies the cluster, tries each change on the copy, makes it in the cluster, and compares.
func TestAccuracy(t *testing.T) {
	explained, err := differences.Read("differences.txt")
	harness.Must(t, err)
	c := newCluster(t)
	var played []*scenario
	for i := range all {
		if s := &all[i]; *upstream != "" || s.quick {
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
	before := c.settled(t, played)
	for _, s := range played {
		if s.after != nil {
			c.must(t, s, "", s.after...)
			before = nil
		}
	}
	if before == nil {
		before = c.settled(t, played)
	}
	file := filepath.Join(t.TempDir(), "copy.db")
	c.command(t, sqube.Binary(t), "copy", file)
	turns := make(chan struct{}, 2) // trials at once
	table := &results{}
	defer func() {
		t.Logf("on %s:\n%s", c.description(), table)
		if *upstream != "" && len(table.rows) == len(all) {
			unused(t, explained)
		}
	}()
	t.Run("scenarios", func(t *testing.T) {
		for _, s := range played {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				tried := c.try(t, s, file, before.uids(), turns)
				printed := c.change(t, s)
				made := c.end(t, s, before.uids())
				ends := diff(s.name, made, tried.outcome, explained)
				reasons := tried.reasons(s, made, printed, explained)
				for _, d := range slices.Concat(ends, reasons) {
					t.Error(d)
				}
				table.add(s, tried, len(ends) == 0, len(reasons) == 0)
			})
		}
	})
}

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
		c.join(t, o)
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
	for _, manifest := range []string{c.filled(s.setup), s.more} {
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

// change makes a scenario's change, and returns what kubectl prints.
func (c *cluster) change(t *testing.T, s *scenario) (printed string) {
	t.Helper()
	out, err := "", error(nil)
	switch {
	case s.make != nil:
		s.make(c)
	case s.manifest != "":
		out, err = c.kubectl(t, s.manifest, "apply", "--server-side", "-f", "-")
	default:
		out, err = c.kubectl(t, "", s.kubectl...)
	}
	t.Logf("the change: %v: %s", err, out)
	return out
}

// end waits until a scenario has come to its end in the cluster, and returns it.
func (c *cluster) end(t *testing.T, s *scenario, before map[string]bool) (last outcome) {
	t.Helper()
	begin := time.Now()
	for since := begin; time.Since(begin) < s.lasts || time.Since(since) < still; time.Sleep(500 * time.Millisecond) {
		now, err := read(context.WithoutCancel(t.Context()), c.Discovery(), c.dynamic)
		harness.Must(t, err)
		if outcome := outcomeOf(s, now, before, time.Time{}); text(outcome) != text(last) {
			last, since = outcome, time.Now()
		}
		if time.Since(begin) > s.lasts+harness.Patience {
			t.Errorf("it does not come to its end")
			break
		}
	}
	return last
}
