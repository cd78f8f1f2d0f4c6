package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/cmd/sqube/internal/manifests"
	"github.com/sqube/sqube/cmd/sqube/internal/report"
	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/server/kubecopy"
	"github.com/sqube/sqube/server/trial"
)

// tryName is the name of the command.
const tryName = "try"

// tryOptions are the flags of sqube try.
type tryOptions struct {
	trySource
	around  tryWorld
	apply   applyOptions // whose files are applied
	kubectl string
	span    time.Duration
	timeout time.Duration
	save    string
	with    []string
	doIt    string // --apply
	objects []manifests.Object
	output  string
}

func tryCommand() *cobra.Command {
	var o tryOptions
	cmd := &cobra.Command{
		Use:   tryName + " {-f FILE | -k FOLDER | KUBECTL-WORDS | -- COMMAND}",
		Short: "Try a change on a copy of a cluster, and print what it does",
		Long: `Try a change on a copy of a cluster, and print what it does: what is created, changed
and deleted, by whom and why, what waits, and what is refused. The cluster is only read.

The copy runs in this process, with Kubernetes' own controllers and scheduler, and with
simulated nodes in place of the real ones. It comes to rest, then the change is made with
the rights that you have in the cluster, and then the copy is watched for the time of
--for, which passes in seconds. What it does without the change as well is left out.

The copy is of the cluster of your kubeconfig, or of --context, of any kind from
Kubernetes 1.25 on; with --from, of a backup or a database. The values of Secrets stay
where they are, unless --secrets is given.

A change is files (server-side apply, as sqube apply does it), or words that kubectl
understands, or any command after --, which gets a KUBECONFIG of the copy; time passes
while it waits. Flags of sqube try come before the words. --lose and --load say what
happens around the change, or instead of one.

Exit codes: 0 if everything came to rest as asked, 1 if not, or if the change was refused,
2 if it could not be tried.`,
		Example: `  sqube try -f web.yaml
  sqube try --context prod -k overlays/prod -o markdown
  sqube try -n shop delete node/n3 --drain
  sqube try --context prod -- helm upgrade web ./chart --wait
  sqube try --lose node/n3 --load deployment/web=200%
  sqube try --for 24h --from last-night.db -f policy.yaml
  sqube try --with './operator --leader-elect=false' -f database.yaml
  sqube try --apply -f web.yaml`,
		RunE: o.run,
	}
	fs := cmd.Flags()
	fs.SetInterspersed(false) // kubectl's words have flags of their own
	o.trySource.addFlags(cmd)
	o.around.addFlags(fs)
	o.apply.files.AddFlags(fs, "apply")
	fs.StringVarP(&o.apply.namespace, "namespace", "n", "", "Namespace of objects that name none, and of the command. If unset, the context's.")
	fs.StringVar(&o.apply.manager, "field-manager", "kubectl", "Who owns the fields of objects in files.")
	fs.BoolVar(&o.apply.force, "force-conflicts", false, "Take fields over from other field managers.")
	fs.StringVar(&o.apply.validation, "validate", "Strict", "What to do about unknown and duplicate fields in files: Strict refuses them, Warn warns, Ignore does nothing.")
	fs.StringVar(&o.kubectl, "kubectl", "kubectl", "The kubectl that understands the words.")
	fs.DurationVar(&o.span, "for", 10*time.Minute, "How long the copy is watched after the change, in its own time.")
	fs.DurationVar(&o.timeout, "timeout", 10*time.Minute, "How long the trial can take, in real time.")
	fs.StringArrayVar(&o.with, "with", nil, "Command of a controller that is not in the copy, such as an operator, for sh. It gets a KUBECONFIG of the copy as an administrator, from before the change to the end. Another one runs in the copy without the change, so that what it does there is left out. Can be repeated.")
	fs.StringVar(&o.doIt, "apply", "", "Make the change in the cluster after the trial if the copy came to rest, or 'always', unless it was refused. What the change stands on must be as it was copied: the objects that it touches, their namespaces, quotas and limits, and the cluster's policies and webhooks. Files are a transaction on a server of sqube.")
	fs.Lookup("apply").NoOptDefVal = "at-rest"
	fs.StringVar(&o.save, "save", "", "New file for the copy as it is at the end, with its history: sqube console shows it.")
	fs.StringVarP(&o.output, "output", "o", "text", "Print the result as 'text', 'json' or 'markdown'.")
	return cmd
}

func (o *tryOptions) check(cmd *cobra.Command, args []string) error {
	files := len(o.apply.files.Filenames) > 0 || o.apply.files.Kustomize != ""
	switch {
	case len(args) == 0 && !files && !o.around.given():
		return fmt.Errorf("want a change: -f FILE, -k FOLDER, words of kubectl, or -- and a command (see %s --help)", cmd.CommandPath())
	case len(args) > 0 && files:
		return errors.New("give files or a command, not both: a command can be sh -c '…'")
	case !slices.Contains([]string{"text", "json", "markdown"}, o.output):
		return fmt.Errorf("--output must be text, json or markdown, not %q", o.output)
	case !slices.Contains([]string{"", "at-rest", applyAlways}, o.doIt):
		return fmt.Errorf("--apply must be at-rest or always, not %q", o.doIt)
	case o.doIt != "" && o.from != "" && !strings.HasPrefix(o.from, kubecopy.Prefix):
		return errors.New("--apply needs a cluster: --from names a backup")
	case o.span <= 0 || o.timeout <= 0:
		return errors.New("--for and --timeout must be more than 0")
	}
	if err := o.around.set("", &trial.Options{}); err != nil { // before a cluster is read
		return err
	}
	if o.save != "" {
		if _, err := os.Lstat(o.save); err == nil {
			return fmt.Errorf("--save: %s exists: give another file", o.save)
		}
		if _, err := os.Stat(filepath.Dir(o.save)); err != nil {
			return fmt.Errorf("--save: %w", err)
		}
	}
	return nil
}

func (o *tryOptions) run(cmd *cobra.Command, args []string) (err error) {
	if err := o.check(cmd, args); err != nil {
		return err
	}
	limitMemory()
	ctx, cancel := context.WithTimeoutCause(untilInterrupt(cmd.Context()), o.timeout, fmt.Errorf("it did not end within the %s of --timeout", o.timeout))
	defer cancel()
	cmd.SetContext(ctx)
	folder, err := os.MkdirTemp("", "sqube-try-") // for this user alone
	if err != nil {
		return err
	}
	defer closing(&err, func() error { return os.RemoveAll(folder) })
	if err := os.Setenv("TMPDIR", folder); err != nil { // what is left behind when it is interrupted is removed with it
		return err
	}
	o.namespaces = append(o.namespaces, o.apply.namespace)
	options := trial.Options{For: o.span, Save: o.save}
	if err := o.change(cmd, args, &options); err != nil { // files are read before a cluster is
		return err
	}
	options.Words = strings.TrimSpace(options.Words + " " + o.around.words())
	if err := o.trySource.prepare(cmd, folder, &options); err != nil {
		return interrupted(ctx, err)
	}
	if err := o.around.set(o.namespace(), &options); err != nil {
		return err
	}
	options.Real = o.real(cmd, args)
	for _, line := range o.with {
		options.Beside = append(options.Beside, o.beside(cmd, line))
	}
	result, err := trial.Run(ctx, options)
	if err != nil {
		return interrupted(ctx, terminal.OneLine(err))
	}
	if err := o.print(cmd, result); err != nil {
		return err
	}
	if o.doIt != "" {
		if o.output != "text" { // whose readers want the result alone
			cmd.SetOut(cmd.ErrOrStderr())
		}
		return o.forReal(cmd, args, result, &options)
	}
	if result.Verdict != trial.AtRest {
		return errDifferent
	}
	return nil
}

// namespace is that of the change: --namespace, or the context's.
func (o *tryOptions) namespace() string { return cmp.Or(o.apply.namespace, o.ownNamespace) }

// interrupted returns why ctx has ended instead of an error that followed from it.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return errors.New("it was interrupted: nothing was changed")
}

// change sets what is tried.
func (o *tryOptions) change(cmd *cobra.Command, args []string, to *trial.Options) error {
	if len(args) > 0 {
		return o.command(cmd, args, to)
	}
	if len(o.apply.files.Filenames) == 0 && o.apply.files.Kustomize == "" { // something happens by itself
		to.Change = func(context.Context, *rest.Config, *trial.Answers) error { return nil }
		return nil
	}
	objects, err := o.apply.files.Read(cmd.InOrStdin())
	if err != nil {
		return terminal.OneLine(err)
	}
	if isTransaction(objects) {
		if o.doIt != "" {
			return errors.New("--apply takes objects, not a Transaction: create it with kubectl")
		}
		return o.transaction(objects[0], to)
	}
	manifests.Sort(objects)
	o.objects = objects
	for _, object := range objects {
		o.namespaces = append(o.namespaces, object.GetNamespace())
	}
	to.Words = "apply " + o.apply.filesInWords()
	to.Change = func(ctx context.Context, config *rest.Config, answers *trial.Answers) error {
		return o.applyInCopy(ctx, config, objects, answers)
	}
	return nil
}

// real returns the command that makes the change in the cluster; "" for a trial on a backup, which need not belong to one.
func (o *tryOptions) real(cmd *cobra.Command, args []string) string {
	if o.from != "" {
		return ""
	}
	if len(args) > 0 && cmd.ArgsLenAtDash() == 0 {
		return inWords(args)
	}
	var flags []string
	for _, name := range []string{"kubeconfig", "context", "as", "as-group", "namespace"} {
		if f := cmd.Flags().Lookup(name); f.Changed {
			value := strings.Trim(f.Value.String(), "[]")
			flags = append(flags, "--"+name, value)
		}
	}
	if len(args) == 0 {
		line := []string{o.kubectl, "apply", "--server-side"}
		if o.apply.force {
			line = append(line, "--force-conflicts")
		}
		return inWords(append(line, flags...)) + " " + o.apply.filesInWords()
	}
	var words []string
	for _, line := range kubectlLines(o.kubectl, args) {
		words = append(words, inWords(slices.Concat(line[:1], flags, line[1:])))
	}
	return strings.Join(words, " && ")
}

// filesInWords returns the flags that name the files.
func (o *applyOptions) filesInWords() string {
	var words []string
	for _, name := range o.files.Filenames {
		words = append(words, "-f", name)
	}
	if o.files.Recursive {
		words = append(words, "-R")
	}
	if o.files.Kustomize != "" {
		words = append(words, "-k", o.files.Kustomize)
	}
	if o.files.Selector != "" {
		words = append(words, "-l", o.files.Selector)
	}
	return inWords(words)
}

// inWords returns a command as a shell takes it.
func inWords(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = shell(word)
	}
	return strings.Join(quoted, " ")
}

func (o *tryOptions) print(cmd *cobra.Command, result *trial.Result) error {
	if o.output == "json" {
		text, err := terminal.JSON(result)
		if err == nil {
			_, err = cmd.OutOrStdout().Write(text)
		}
		return err
	}
	if o.output == "markdown" {
		return report.Markdown(cmd.OutOrStdout(), result)
	}
	err := report.Text(cmd.OutOrStdout(), result, widthOf(cmd.OutOrStdout()))
	if err == nil && result.Command != "" && o.doIt == "" && result.Verdict == trial.AtRest {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "For real: %s\n", terminal.Printable(result.Command))
	}
	return err
}
