package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/server/changes"
)

// changesOptions are the flags of sqube changes.
type changesOptions struct {
	cluster
	namespace    string
	all          bool
	since, until string
	selectors    map[string]*string // by field selector
	paths        []string
	newest       bool
	watch        bool
	onlyWaiting  bool
	output       string
}

func changesCommand() *cobra.Command {
	o := &changesOptions{selectors: map[string]*string{}}
	cmd := &cobra.Command{
		Use:   "changes [RESOURCE NAME]",
		Short: "List and follow what changed in the cluster, by whom",
		Long: `List and follow what changed in a namespace, in the cluster, or of an object: when, by
whom, and which fields, with their old and new values, of secret ones their sizes. It
asks the server, so it shows the changes of objects that you may list, as far back as
the server keeps them, like kubectl get changes. For what a database, a backup's or an
archive holds of an object, without a server, there is sqube history.`,
		Example: `  sqube changes -n shop --since 10m
  sqube changes deploy/web -n shop --field .spec.template
  sqube changes -A --user jane --operation delete
  sqube changes -A -w`,
		RunE: o.run,
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *changesOptions) addFlags(fs *pflag.FlagSet) {
	o.cluster.addFlags(fs)
	fs.StringVarP(&o.namespace, "namespace", "n", "", "Namespace of the changes. If unset, the context's.")
	fs.BoolVarP(&o.all, "all-namespaces", "A", false, "The changes in all namespaces, and of objects that are in none.")
	fs.StringVar(&o.since, "since", "", "Only the changes since then: a time such as 2026-11-21T10:00:00Z, or how long ago, such as 10m.")
	fs.StringVar(&o.until, "until", "", "Only the changes until then: a time, or how long ago.")
	for _, s := range [...]struct{ flag, field, usage string }{
		{"user", "user", "Only what this user did, or others in the name of this user."},
		{"impersonated-user", "impersonatedUser", "Only what others did in the name of this user, by impersonation."},
		{"manager", "fieldManager", "Only what was done with this field manager, such as kubectl-edit."},
		{"kind", "kind", "Only changes of objects of this kind, such as Deployment."},
		{"operation", "operation", "Only these operations: create, update or delete."},
		{"transaction", "transaction", "Only what this transaction did."},
	} {
		o.selectors[s.field] = fs.String(s.flag, "", s.usage)
	}
	fs.StringArrayVar(&o.paths, "field", nil, "Only updates of this field or of one in it, such as .spec.replicas; if repeated, of each.")
	fs.BoolVar(&o.newest, "newest-first", false, "List the newest changes first.")
	fs.BoolVarP(&o.watch, "watch", "w", false, "Go on with the changes that happen from now on.")
	fs.BoolVar(&o.onlyWaiting, "unconfirmed", false, "List the transactions that wait to be confirmed instead. The server takes them back at their deadlines.")
	fs.StringVarP(&o.output, "output", "o", "", "'wide' for more columns, 'json' for one JSON object on each line.")
}

func (o *changesOptions) run(cmd *cobra.Command, args []string) error {
	if o.output != "" && o.output != "json" && o.output != "wide" {
		return fmt.Errorf("--output must be wide or json, not %q", o.output)
	}
	for flag, text := range map[string]string{"--since": o.since, "--until": o.until} {
		if text == "" {
			continue
		}
		if _, err := ago(flag, text, time.Now()); err != nil {
			return err
		}
	}
	if o.watch && o.newest {
		return errors.New("--watch and --newest-first must not be given together")
	}
	if err := o.load(); err != nil {
		return err
	}
	if o.onlyWaiting {
		return o.printUnconfirmed(cmd.Context(), cmd.OutOrStdout())
	}
	log, err := o.log(args)
	if err != nil {
		return err
	}
	p := &changePrinter{out: cmd.OutOrStdout(), wide: o.output == "wide", namespaces: log.namespace == ""}
	form, show := asTable, p.table
	if o.output == "json" {
		form, show = asJSON, p.list
	}
	revision, err := log.pages(cmd.Context(), form, show)
	if err != nil || !o.watch {
		if err == nil && p.rows == 0 && o.output != "json" {
			_, err = fmt.Fprintln(cmd.ErrOrStderr(), "No changes found, as far as you may know.")
		}
		return err
	}
	if form == asJSON {
		show = p.one
	}
	return follow(cmd.Context(), log, form, revision, show)
}

// log returns the changes that the arguments and flags select.
func (o *changesOptions) log(args []string) (*changeLog, error) {
	log := &changeLog{cluster: &o.cluster, namespace: o.namespace}
	switch {
	case len(args) > 0:
		if o.all {
			return nil, errors.New("--all-namespaces is not for one object")
		}
		if err := log.of(args); err != nil {
			return nil, err
		}
	case o.all:
		log.namespace = ""
	case o.namespace == "":
		var err error
		if log.namespace, _, err = o.loader.Namespace(); err != nil {
			return nil, err
		}
	}
	add := func(field, value string) {
		if value != "" {
			log.terms = append(log.terms, equals(field, value))
		}
	}
	for field, value := range o.selectors {
		add(field, *value)
	}
	for _, path := range o.paths {
		add("field", path)
	}
	add("since", o.since)
	add("until", o.until)
	if o.newest {
		add("order", "newest")
	}
	return log, nil
}

// of selects the changes of an object.
func (l *changeLog) of(args []string) error {
	resource, namespace, name, err := l.object(args, l.namespace)
	if err != nil {
		return err
	}
	l.namespace = namespace
	l.terms = append(l.terms, equals("resource", resource.String()), equals("name", name))
	if namespace == "" {
		l.terms = append(l.terms, equals("namespace", ""))
	}
	if resource.Group == "" {
		l.terms = append(l.terms, equals("group", ""))
	}
	return nil
}

// follow calls show with each change after a revision, until the command is interrupted.
func follow(ctx context.Context, log *changeLog, form, revision string, show func([]byte) error) error {
	for {
		err := log.watch(ctx, form, revision, func(e *watchEvent) error {
			if e.Type == "ERROR" {
				status := metav1.Status{}
				if err := json.Unmarshal(e.Object, &status); err != nil {
					return err
				}
				return terminal.OneLine(apierrors.FromObject(&status))
			}
			var at metav1.PartialObjectMetadata
			if err := json.Unmarshal(e.Object, &at); err != nil {
				return err
			}
			if at.ResourceVersion != "" {
				revision = at.ResourceVersion
			}
			if e.Type == "BOOKMARK" {
				return nil
			}
			return show(e.Object)
		})
		if err != nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second): // the server has ended it
		}
	}
}

// changePrinter prints changes in columns that keep their places from page to page, as far as they can. Those of a transaction are below a
// line with its name.
type changePrinter struct {
	out              io.Writer
	wide, namespaces bool
	widths           []int
	rows             int
	transaction      string // that of the last row, "" for none
}

// table prints a Table of the API.
func (p *changePrinter) table(text []byte) error {
	var t metav1.Table
	if err := json.Unmarshal(text, &t); err != nil {
		return err
	}
	of := slices.IndexFunc(t.ColumnDefinitions, func(c metav1.TableColumnDefinition) bool { return c.Name == changes.TransactionColumn })
	var rows [][]string
	if p.rows == 0 && len(t.Rows) > 0 {
		head := p.cells(&t, func(i int) string { return strings.ToUpper(t.ColumnDefinitions[i].Name) })
		if p.namespaces {
			head = append([]string{"NAMESPACE"}, head...)
		}
		rows = append(rows, head)
	}
	for _, row := range t.Rows {
		cells := p.cells(&t, func(i int) string { return fmt.Sprint(row.Cells[i]) })
		if p.namespaces {
			var change metav1.PartialObjectMetadata
			if err := json.Unmarshal(row.Object.Raw, &change); err != nil {
				return err
			}
			cells = append([]string{change.Namespace}, cells...)
		}
		if transaction := p.transactionOf(&row, of); transaction != "" {
			if transaction != p.transaction {
				rows = append(rows, []string{"transaction " + transaction})
			}
			cells[0] = "  " + cells[0]
			p.transaction = transaction
		} else {
			p.transaction = ""
		}
		rows = append(rows, cells)
	}
	p.rows += len(t.Rows)
	return p.print(rows)
}

// transactionOf returns the cell of a column of a row, "" if it has no transaction.
func (p *changePrinter) transactionOf(row *metav1.TableRow, column int) string {
	if column < 0 || column >= len(row.Cells) || row.Cells[column] == changes.None {
		return ""
	}
	return terminal.Printable(fmt.Sprint(row.Cells[column]))
}

// cells returns the columns that are shown.
func (p *changePrinter) cells(t *metav1.Table, cell func(i int) string) (cells []string) {
	for i, column := range t.ColumnDefinitions {
		if column.Priority == 0 || p.wide {
			cells = append(cells, terminal.Printable(cell(i)))
		}
	}
	return cells
}

func (p *changePrinter) print(rows [][]string) error {
	for _, row := range rows {
		if len(row) == 1 { // the line of a transaction
			continue
		}
		for i, cell := range row {
			if i == len(p.widths) {
				p.widths = append(p.widths, 0)
			}
			p.widths[i] = max(p.widths[i], utf8.RuneCountInString(cell))
		}
	}
	text := &strings.Builder{}
	for _, row := range rows {
		for i, cell := range row {
			if i == len(row)-1 {
				fmt.Fprintln(text, cell)
			} else {
				fmt.Fprintf(text, "%-*s", p.widths[i]+3, cell)
			}
		}
	}
	_, err := io.WriteString(p.out, text.String())
	return err
}

// list prints the items of a list as JSON.
func (p *changePrinter) list(text []byte) error {
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	for _, item := range list.Items {
		if err := p.one(item); err != nil {
			return err
		}
	}
	return nil
}

// one prints a change as JSON.
func (p *changePrinter) one(text []byte) error {
	line, err := terminal.JSONLine(json.RawMessage(text))
	if err == nil {
		_, err = p.out.Write(line)
	}
	return err
}
