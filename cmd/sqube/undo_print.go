package main

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/sqube/sqube/cmd/sqube/internal/report"
	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/server/undo"
)

// printUndo prints a plan, or what has become of it and the command that takes it back.
func printUndo(out io.Writer, command string, u *undo.Undo) error {
	text := &strings.Builder{}
	line := func(indent, format string, args ...any) {
		fmt.Fprintln(text, indent+terminal.Printable(fmt.Sprintf(format, args...)))
	}
	for _, note := range u.Status.Notes {
		line("", "note: %s", note)
	}
	if len(u.Status.Plan) == 0 {
		line("", "There is nothing to undo, as far as you may know.")
		_, err := io.WriteString(out, text.String())
		return err
	}
	counts := map[undo.Action]int{}
	for _, step := range u.Status.Plan {
		counts[step.Action]++
		line("", "%s", headline(&step))
		if authors := changesLine(step.Undoes); authors != "" && step.Action != undo.Leave {
			line("    ", "takes back %s", authors)
		}
		for _, field := range report.Fields(step.Diff) {
			line("    ", "%s", field)
		}
		for _, w := range step.Warnings {
			line("    ", "warning: %s", w)
		}
		for _, c := range step.Conflicts {
			line("    ", "%s", conflictLine(&c))
		}
	}
	fmt.Fprintf(text, "\n%d to create, %d to update, %d to delete, %d left as they are.\n", counts[undo.Create], counts[undo.Update], counts[undo.Delete], counts[undo.Leave])
	switch applied := u.Status.Applied; {
	case !u.Spec.Apply && len(u.Status.Plan) > counts[undo.Leave]:
		fmt.Fprintln(text, "This is a plan: nothing has been changed. Add --apply to apply it.")
	case applied != nil && applied.Transaction != "":
		line("", "To take this back: %s --transaction %s", command, shell(applied.Transaction))
	case applied != nil && applied.Since != nil: // in a mirrored cluster
		line("", "To take this back: %s --manager %s --since %s", command, shell(applied.FieldManager), applied.Since.UTC().Format(time.RFC3339))
	case applied != nil:
		whose := "--user " + shell(applied.User)
		if applied.ImpersonatedUser != "" {
			whose += " --impersonated-user " + shell(applied.ImpersonatedUser)
		}
		line("", "To take this back: %s %s --audit-id %s --after-revision %d --before-revision %d", command,
			whose, shell(applied.AuditID), applied.AfterRevision, applied.BeforeRevision)
	}
	_, err := io.WriteString(out, text.String())
	return err
}

var plain = regexp.MustCompile(`^[A-Za-z0-9@%+=:,./_-]+$`)

func shell(text string) string {
	if plain.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

func headline(s *undo.Step) string {
	o := s.Object
	version, _ := schema.ParseGroupVersion(o.APIVersion)
	text := fmt.Sprintf("%-6s  %s", s.Action, report.Name(schema.GroupResource{Group: version.Group, Resource: o.Resource}, o.Namespace, o.Name))
	if s.Result != "" {
		text += " (" + map[undo.Result]string{undo.Done: "done", undo.Failed: "failed", undo.NotTried: "not tried"}[s.Result] + ")"
	}
	for _, why := range []string{s.Reason, s.Message} {
		if why != "" {
			text += ": " + why
		}
	}
	return text
}

// changesLine says by whom changes are, without what controllers did because of others.
func changesLine(all []undo.ChangeReference) string {
	var texts []string
	for _, c := range all {
		if c.ImpersonatedUser == "" && (c.User == user.APIServerUser || strings.HasPrefix(c.User, serviceaccount.MakeUsername("kube-system", ""))) {
			continue
		}
		text := fmt.Sprint(c.Revision)
		if c.User != "" { // a mirror may not know it
			text += " by " + changes.Author(c.User, c.ImpersonatedUser)
		}
		if c.FieldManager != "" {
			text += " with " + c.FieldManager
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ")
}

func conflictLine(c *undo.Conflict) string {
	text := "conflict"
	if c.Path != "" {
		text += " in " + c.Path
	}
	if c.Change.Revision != 0 {
		text += fmt.Sprintf(": revision %d by %s", c.Change.Revision, changes.Author(c.Change.User, c.Change.ImpersonatedUser))
	}
	if c.Forced {
		text += " is overwritten"
	}
	return text
}

// unfinished returns an error if not all of a plan that was to be applied has been.
func unfinished(u *undo.Undo) error {
	if !u.Spec.Apply || u.Status.Complete {
		return nil
	}
	if u.Status.Applied == nil && !u.Spec.Partial {
		return errors.New("nothing has been changed, since not everything could be: see the steps that have failed; --partial applies the others")
	}
	return errors.New("not everything has been applied: run the same command again to go on")
}
