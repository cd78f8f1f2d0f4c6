package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sqube/sqube/cmd/sqube/internal/gateway"
	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/server/transaction"
)

const (
	// pingInterval is how often sqube tx tells the server that its command still runs.
	pingInterval = 20 * time.Second
	// killAfter is how long a command has to end once it can't go on.
	killAfter = 5 * time.Second
)

// txOptions are the flags of sqube tx.
type txOptions struct {
	cluster
	name, namespace string
	within          time.Duration
	confirm         confirmFlags
}

func txCommand() *cobra.Command {
	var o txOptions
	cmd := &cobra.Command{
		Use:   "tx -- COMMAND [ARGUMENT...]",
		Short: "Run a command whose writes are committed together when it ends well, or not at all",
		Long: `Run a command, such as helm upgrade, whose writes are one transaction: they are committed
together when it ends with exit code 0, and dropped otherwise. Its own reads see what it
has written; everything else it sees as it was when it began. Nobody else sees anything
of it before it is committed, and nothing is locked: if others have changed the same
objects meanwhile, nothing is written.

The command gets a kubeconfig ($KUBECONFIG) with an address on this machine. It must not
choose another one, such as with --kubeconfig or --context.

No controller acts on what is not committed. So commands that wait for controllers are
ended, and nothing is written: helm with --wait or hooks, kubectl wait, kubectl rollout
status, kubectl delete of a namespace (use --wait=false), and all watches. Wait after
sqube tx instead.`,
		Example: `  sqube tx -- helm upgrade web ./chart
  sqube tx --within 30m -- ./change-everything.sh`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || cmd.ArgsLenAtDash() != 0 {
				return errors.New("want -- and a command")
			}
			return nil
		},
		RunE: o.run,
	}
	fs := cmd.Flags()
	o.addFlags(fs)
	fs.StringVar(&o.name, "name", "", "Name of the transaction, which can be used once in a day. If unset, one is made up.")
	fs.StringVarP(&o.namespace, "namespace", "n", "", "Namespace of the kubeconfig that the command gets. If unset, the context's.")
	o.confirm.addFlags(fs)
	fs.DurationVar(&o.within, "within", 10*time.Minute, "How long the command may take, at most 1h. The server drops what it has written then.")
	return cmd
}

func (o *txOptions) run(cmd *cobra.Command, args []string) (err error) {
	if err := o.confirm.check(); err != nil {
		return err
	}
	if err := o.load(); err != nil {
		return err
	}
	namespace := o.namespace
	if namespace == "" {
		if namespace, _, err = o.loader.Namespace(); err != nil {
			return terminal.OneLine(err)
		}
	}
	client, err := transaction.NewClient(o.config, nil)
	if err != nil {
		return err
	}
	t := client.New(o.name)
	t.Namespace = namespace
	o.confirm.set(t)
	opened, err := t.Open(cmd.Context(), o.within)
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		t.Namespace = ""
		opened, err = t.Open(cmd.Context(), o.within)
	}
	if err != nil {
		return terminal.OneLine(err)
	}
	r := &txRun{opened: opened, client: client, name: t.Name(), command: args[0], stopped: make(chan struct{})}
	g, err := gateway.Open(opened.Config(o.config), gateway.Options{Context: "transaction", Namespace: namespace, Parent: privateFolder(), Answered: r.answered})
	if err == nil {
		defer closing(&err, g.Close)
		err = r.run(cmd, args, g)
	}
	if err != nil {
		dropping, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), killAfter)
		defer cancel()
		_ = opened.Drop(dropping) // else the server does it soon
		return err
	}
	if g.Requests() == 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "No request of %s came through the transaction. If it should have, let it use $KUBECONFIG.\n", terminal.Printable(args[0]))
	}
	done, err := opened.Commit(cmd.Context())
	if err != nil {
		return committed(err)
	}
	if err := o.print(cmd, done); err != nil {
		return err
	}
	return confirmByKey(cmd.Context(), client, cmd.InOrStdin(), cmd.ErrOrStderr(), done)
}

// committed returns the error of a commit, which says what became of it.
func committed(err error) error {
	if unknown := unknownOutcome(err); unknown != nil {
		return unknown
	}
	if !strings.Contains(err.Error(), "nothing ") {
		err = fmt.Errorf("%w; nothing was written", err)
	}
	return terminal.OneLine(err)
}

// print prints what was committed, and how to take it back.
func (o *txOptions) print(cmd *cobra.Command, done *transaction.Result) error {
	words := map[string]string{"create": "created", "update": "configured", "delete": deleted}
	for i := range done.Operations {
		r := &done.Operations[i]
		if _, err := fmt.Fprintln(cmd.ErrOrStderr(), nameOf(r), words[r.Verb]); err != nil {
			return err
		}
	}
	if len(done.Operations) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "There was nothing to commit.")
		return nil
	}
	confirmHint(cmd.ErrOrStderr(), cmd.Root().CommandPath(), done)
	undoHint(cmd.ErrOrStderr(), cmd.Root().CommandPath(), done)
	return nil
}

// txRun is a run of the command.
type txRun struct {
	opened        *transaction.Open
	client        *transaction.Client
	name, command string

	mu      sync.Mutex
	why     error         // why the command can't go on
	stopped chan struct{} // closed when why is set
}

// stop has the command end, since it can't go on.
func (r *txRun) stop(why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.why == nil {
		r.why = why
		close(r.stopped)
	}
}

// answered looks at the server's answers to the command.
func (r *txRun) answered(answer *http.Response) {
	if why := answer.Header.Get(transaction.RefusedHeader); why != "" {
		r.stop(errors.New(why))
	}
}

// run runs the command.
func (r *txRun) run(cmd *cobra.Command, args []string, g *gateway.Gateway) error {
	child := exec.Command(args[0], args[1:]...)
	child.Stdin, child.Stdout, child.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	child.Env = append(os.Environ(), "KUBECONFIG="+g.Kubeconfig, "KUBECACHEDIR="+g.Folder)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	if err := child.Start(); err != nil {
		return fmt.Errorf("%w; nothing was written", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	ping := time.NewTicker(pingInterval)
	defer ping.Stop()
	stopped, kill := r.stopped, (<-chan time.Time)(nil)
	for {
		select {
		case err := <-ended:
			return r.outcome(err)
		case s := <-signals:
			if s != os.Interrupt || !onTerminal(cmd.InOrStdin()) { // from which the command gets it, too
				_ = child.Process.Signal(s) // fails only if it has ended
			}
		case <-stopped:
			stopped, kill = nil, time.After(killAfter)
			_ = child.Process.Signal(syscall.SIGTERM)
		case <-kill:
			_ = child.Process.Kill()
		case <-ping.C:
			go r.ping(cmd.Context())
		}
	}
}

func onTerminal(in io.Reader) bool {
	file, ok := in.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// ping tells the server that the transaction is still needed.
func (r *txRun) ping(ctx context.Context) {
	found, err := r.client.Get(ctx, r.name)
	if apierrors.IsNotFound(err) || err == nil && found.OpenUntil == nil {
		r.stop(fmt.Errorf("the server does not have the transaction %s any more: its time was up, or the server was restarted", r.name))
	}
}

// outcome returns the error of a command that has ended.
func (r *txRun) outcome(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	code := 0
	if exited, ok := errors.AsType[*exec.ExitError](err); ok {
		code = max(1, exited.ExitCode())
	}
	switch {
	case r.why != nil:
		return &exitError{fmt.Errorf("%s was ended; nothing was written: %w", r.command, terminal.OneLine(r.why)), max(1, code)}
	case code != 0:
		return &exitError{fmt.Errorf("%s: %w; nothing was written", r.command, err), code}
	case err != nil:
		return fmt.Errorf("%s: %w; nothing was written", r.command, err)
	}
	return nil
}

// exitError is an error with an exit code of its own.
type exitError struct {
	error
	code int
}
