package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/cmd/sqube/internal/gateway"
	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/server/trial"
)

// tryCommandRun is a command that makes the change of a trial.
type tryCommandRun struct {
	o     *tryOptions
	lines [][]string // run one after the other until one fails
	in    io.Reader
	out   io.Writer
}

// command sets a command that makes the change.
func (o *tryOptions) command(cmd *cobra.Command, args []string, to *trial.Options) error {
	r := &tryCommandRun{o: o, lines: [][]string{args}, in: cmd.InOrStdin(), out: cmd.ErrOrStderr()}
	to.Words = inWords(args)
	if cmd.ArgsLenAtDash() != 0 {
		r.lines = kubectlLines(o.kubectl, args)
	}
	for _, arg := range args {
		if name, _, _ := strings.Cut(arg, "="); slices.Contains(elsewhere, name) {
			return fmt.Errorf("%s would lead the command to another cluster than the copy: leave it out, and give --kubeconfig or --context before the command", name)
		}
	}
	if _, err := exec.LookPath(r.lines[0][0]); err != nil {
		return terminal.OneLine(err)
	}
	o.helm = filepath.Base(r.lines[0][0]) == "helm"
	to.Command = r.run
	return nil
}

// elsewhere are flags of kubectl and Helm that name a server.
var elsewhere = []string{"--kubeconfig", "--server", "--kube-apiserver"}

// kubectlLines returns the commands for kubectl's words. delete --drain moves the Pods away first.
func kubectlLines(kubectl string, words []string) [][]string {
	drain := slices.Index(words, "--drain")
	if words[0] != "delete" || drain < 0 {
		return [][]string{append([]string{kubectl}, words...)}
	}
	words = slices.Delete(slices.Clone(words), drain, drain+1)
	var nodes []string
	for _, word := range words[1:] {
		if !strings.HasPrefix(word, "-") && !slices.Contains([]string{"node", "nodes", "no"}, word) {
			nodes = append(nodes, strings.TrimPrefix(strings.TrimPrefix(word, "nodes/"), "node/"))
		}
	}
	return [][]string{append([]string{kubectl, "drain", "--ignore-daemonsets", "--delete-emptydir-data", "--force"}, nodes...), append([]string{kubectl}, words...)}
}

// run runs the commands. It is called while the copy's time waits for them.
func (r *tryCommandRun) run(ctx context.Context, config *rest.Config, answers *trial.Answers) (err error) {
	g, err := gateway.Open(config, gateway.Options{Context: cmp.Or(r.o.contextName, "trial"), Namespace: r.o.namespace()})
	if err != nil {
		return err
	}
	defer closing(&err, g.Close)
	for _, line := range r.lines {
		last := &lastLine{}
		err := runGroup(ctx, line, environment(g), r.in, io.MultiWriter(r.out, last))
		if err == nil {
			continue
		}
		words := terminal.Printable(inWords(line))
		exited, failed := errors.AsType[*exec.ExitError](err)
		switch {
		case errors.Is(context.Cause(ctx), trial.ErrTired):
			answers.Fail(fmt.Sprintf("%s was interrupted after it had waited for %s, in the time of the copy: --for.", words, r.o.span))
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case failed:
			answers.Fail(strings.TrimSuffix(fmt.Sprintf("%s failed (%s): %s", words, exited, terminal.Printable(last.String())), ": "))
		default:
			return err
		}
		break
	}
	if g.Requests() == 0 {
		answers.Fail("No request of the command came to the copy: let it use $KUBECONFIG.")
	}
	return nil
}

// beside returns a program that runs beside the copy.
func (o *tryOptions) beside(cmd *cobra.Command, line string) trial.Beside {
	words := strings.Fields(line)
	if len(words) == 0 {
		words = []string{"sh"}
	}
	return trial.Beside{Name: filepath.Base(words[0]), Run: func(ctx context.Context, config *rest.Config, twin bool) (err error) {
		g, err := gateway.Open(config, gateway.Options{Context: cmp.Or(o.contextName, "trial"), Namespace: o.namespace()})
		if err != nil {
			return err
		}
		defer closing(&err, g.Close)
		out := cmd.ErrOrStderr()
		if twin { // it says the same
			out = io.Discard
		}
		return runGroup(ctx, []string{"sh", "-c", line}, environment(g), strings.NewReader(""), out)
	}}
}

// environment returns that of a command: nothing in it leads to another cluster.
func environment(g *gateway.Gateway) []string {
	own := slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return name == "KUBECONFIG" || name == "KUBERNETES_MASTER" || strings.HasPrefix(name, "KUBERNETES_SERVICE_") || strings.HasPrefix(name, "HELM_KUBE") ||
			strings.HasPrefix(name, "KUBE_") && name != "KUBE_EDITOR"
	})
	return append(own, "KUBECONFIG="+g.Kubeconfig, "KUBE_CONFIG_PATH="+g.Kubeconfig, "KUBECACHEDIR="+g.Folder)
}

// killAfterInterrupt is how long processes may take to end when they are interrupted.
const killAfterInterrupt = 3 * time.Second

// runGroup runs a command, and ends the processes that it has started with it. If ctx ends first, they are interrupted, as by Ctrl+C.
func runGroup(ctx context.Context, line, environment []string, in io.Reader, out io.Writer) error {
	output, end, err := os.Pipe() // which Wait does not wait for, as it would for other writers
	if err != nil {
		return err
	}
	defer output.Close()
	c := exec.Command(line[0], line[1:]...)
	c.Env, c.Stdout, c.Stderr = environment, end, end
	if !onTerminal(in) { // reading from it would stop a group in the background
		c.Stdin = in
	}
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = c.Start()
	_ = end.Close()
	if err != nil {
		return err
	}
	copied, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(copied)
		_, _ = io.Copy(out, output) // until the last process has ended
	}()
	go func() { ended <- c.Wait() }()
	group := -c.Process.Pid
	select {
	case err = <-ended:
	case <-ctx.Done():
		_ = syscall.Kill(group, syscall.SIGINT)
		select {
		case err = <-ended:
		case <-time.After(killAfterInterrupt):
			_ = syscall.Kill(group, syscall.SIGKILL)
			err = <-ended
		}
		err = errors.Join(context.Cause(ctx), err)
	}
	_ = syscall.Kill(group, syscall.SIGKILL) // what it has left behind
	select {
	case <-copied:
	case <-time.After(time.Second): // somebody in another group has its output
	}
	return err
}

// lastLine keeps the last line that is written to it.
type lastLine struct {
	mu   sync.Mutex
	text []byte
}

func (l *lastLine) Write(p []byte) (int, error) {
	const most = 4 << 10
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	l.text = l.text[max(0, len(l.text)-most):]
	return len(p), nil
}

func (l *lastLine) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := bytes.TrimSpace(l.text)
	return string(text[bytes.LastIndexByte(text, '\n')+1:])
}
