package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"

	"github.com/google/go-cmp/cmp"

	"github.com/sqube/sqube/test/compare/differences"
	"github.com/sqube/sqube/test/harness"
)

// dir has the scripts, relative to the repository's root.
const dir = "test/compare"

// sameFlags enable what is enabled by default in sqube.
var sameFlags = []string{"--feature-gates=CBORServingAndStorage=true", "--allow-privileged"}

func main() {
	run := flag.String("run", "", "run only the scripts whose names match this regular expression")
	engine := flag.String("sqube", "sqlite", "the engine to run sqube on, sqlite or postgres")
	against := flag.String("against", "", "kubeconfig of a running kube-apiserver; by default one is built and started")
	verbose := flag.Bool("v", false, "print all responses, even equal ones")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	same, err := compare(ctx, os.Stdout, *run, *engine, *against, *verbose)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
	}
	if err != nil || !same {
		os.Exit(1)
	}
}

// compare starts the servers, runs the scripts on both and reports whether every difference is explained.
func compare(ctx context.Context, out io.Writer, run, engine, against string, verbose bool) (same bool, err error) {
	names, err := regexp.Compile(run)
	if err != nil {
		return false, fmt.Errorf("-run: %w", err)
	}
	scripts, err := readScripts(filepath.Join(dir, "testdata"), names)
	if err != nil {
		return false, err
	}
	explained, err := differences.Read(filepath.Join(dir, "differences.txt"))
	if err != nil {
		return false, err
	}
	sqube, err := harness.Hold(ctx, "sqube-"+engine)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, sqube.Close()) }()
	if against == "" {
		apiserver, err := harness.Hold(ctx, "etcd", sameFlags...)
		if err != nil {
			return false, err
		}
		defer func() { err = errors.Join(err, apiserver.Close()) }()
		against = apiserver.Kubeconfig
	}
	want, err := newPlayer(against)
	if err != nil {
		return false, err
	}
	got, err := newPlayer(sqube.Kubeconfig)
	if err != nil {
		return false, err
	}
	t := tally{out: out, differences: explained, verbose: verbose}
	for _, s := range scripts {
		if err := t.play(ctx, s, want, got); err != nil {
			return false, err
		}
	}
	return t.report(run == ""), nil
}

// tally compares responses and counts the results.
type tally struct {
	out                      io.Writer
	differences              []*differences.Difference
	verbose                  bool
	same, explained, differs int
}

// play runs a script on both servers at once, and compares the responses.
func (t *tally) play(ctx context.Context, s script, want, got *player) error {
	var answers [2][]answer
	var errs [2]error
	var both sync.WaitGroup
	for i, p := range []*player{want, got} {
		both.Go(func() { answers[i], errs[i] = p.play(ctx, s) })
	}
	both.Wait()
	for i, name := range []string{"kube-apiserver", "sqube"} {
		if errs[i] != nil {
			return fmt.Errorf("%s: %w", name, errs[i])
		}
	}
	for i, r := range s.requests {
		t.compare(s.name, r, answers[0][i], answers[1][i])
	}
	return nil
}

func (t *tally) compare(script string, r request, wanted, given answer) {
	want, got := wanted.String(), given.String()
	if want == got {
		t.same++
		if t.verbose {
			fmt.Fprintf(t.out, "= %s/%s: %s %s\n%s\n", script, r.title, r.method, r.path, got)
		}
		return
	}
	diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n"))
	if reason := explain(t.differences, script, r.title, wanted, given); reason != "" {
		t.explained++
		fmt.Fprintf(t.out, "~ %s/%s: on purpose: %s\n", script, r.title, reason)
		if t.verbose {
			fmt.Fprintln(t.out, diff)
		}
		return
	}
	t.differs++
	fmt.Fprintf(t.out, "! %s/%s (%s.http:%d): %s %s: kube-apiserver's response (-) and sqube's (+) differ:\n%s\n",
		script, r.title, script, r.line, r.method, r.path, diff)
}

// report prints the counts and reports whether the comparison succeeded. Only a run of all scripts shows which explanations in
// differences.txt are unused.
func (t *tally) report(all bool) bool {
	unused := 0
	for _, d := range t.differences {
		for _, f := range d.Fields {
			if all && !d.Surface() && !f.Used && !f.Sometimes {
				unused++
				fmt.Fprintf(t.out, "! differences.txt:%d: %s: %s no longer differs\n", d.Line, d.Pattern, f.Name)
			}
		}
	}
	fmt.Fprintf(t.out, "%d requests: %d responses are the same, %d differ on purpose, %d differ\n", t.same+t.explained+t.differs, t.same, t.explained, t.differs)
	return t.differs+unused == 0
}
