package accuracy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/sqube/sqube/server/servertest"
	"github.com/sqube/sqube/server/trial"
	"github.com/sqube/sqube/test/compare/differences"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// tried is what a trial has come to.
type tried struct {
	result  trial.Result
	outcome outcome
}

// try tries a scenario's change on a copy, when it is its turn.
func (c *cluster) try(t *testing.T, s *scenario, file string, before map[string]bool, turns chan struct{}) *tried {
	t.Helper()
	turns <- struct{}{}
	defer func() { <-turns }()
	dir := t.TempDir()
	manifest, saved := filepath.Join(dir, "change.yaml"), filepath.Join(dir, "saved.db")
	args := []string{"try", "--from", file, "--save", saved, "-o", "json"}
	for _, flag := range s.flags {
		args = append(args, c.filled(flag))
	}
	switch {
	case s.manifest != "":
		harness.Must(t, os.WriteFile(manifest, []byte(s.manifest), 0o600))
		args = append(args, "-f", manifest)
	case s.kubectl != nil:
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

// reasons returns what a trial says that the cluster has not said, and its verdict, if it is wrong. printed is what kubectl has printed there.
func (r *tried) reasons(s *scenario, made outcome, printed string, explained []*differences.Difference) (wrong []string) {
	if r.result.Verdict != s.verdict {
		wrong = append(wrong, fmt.Sprintf("the verdict is %s, not %s: %q", r.result.Verdict, s.verdict, r.result.Reasons))
	}
	said := plain(printed) + "\n" + said(made)
	check := func(what, message string) {
		if !strings.Contains(said, plain(message)) {
			wrong = append(wrong, fmt.Sprintf("%s: nobody has said %q", what, plain(message)))
		}
	}
	for i := range r.result.Refused {
		_, why, _ := strings.Cut(r.result.Refused[i].Message, " is forbidden: ") // kubectl has other words before it
		check("refused", why)
	}
	for i := range r.result.Pending {
		check("pending", r.result.Pending[i].Reason)
	}
	for i := range r.result.Held {
		check("held", r.result.Held[i].Message)
	}
	for i := range r.result.Warnings {
		check("warning", r.result.Warnings[i])
	}
	for i := range r.result.Events {
		e := &r.result.Events[i]
		title := fmt.Sprintf("%s/Event %s %s %s %s", s.name, e.Type, e.Reason, e.Object.Kind, plain(e.Object.Name))
		if !explain(explained, title, "added") && !explain(explained, title, "message") {
			check("event", e.Message)
		}
	}
	return wrong
}

// said returns all texts in a value, a line each.
func said(value any) string {
	var lines strings.Builder
	var add func(any)
	add = func(value any) {
		switch v := value.(type) {
		case outcome:
			for _, inner := range v {
				add(inner)
			}
		case map[string]any:
			for _, inner := range v {
				add(inner)
			}
		case []any:
			for _, inner := range v {
				add(inner)
			}
		case string:
			fmt.Fprintln(&lines, v)
		}
	}
	add(value)
	return lines.String()
}

// results make a table of all scenarios.
type results struct {
	mu   sync.Mutex
	rows map[string]string
}

func (r *results) add(s *scenario, tried *tried, end, reasons bool) {
	word := map[bool]string{true: "same", false: "DIFFERENT"}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rows == nil {
		r.rows = map[string]string{}
	}
	r.rows[s.name] = fmt.Sprintf("%s\t%s\t%s\t%s\t%s\n", s.name, tried.result.Verdict, word[end], word[reasons], s.shows)
}

// String returns the table.
func (r *results) String() string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "scenario\tverdict\tend\treasons\twhat is tried")
	for i := range all {
		fmt.Fprint(table, r.rows[all[i].name])
	}
	if err := table.Flush(); err != nil {
		return err.Error()
	}
	return text.String()
}
