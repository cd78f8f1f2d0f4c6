package report

import (
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/sqube/sqube/server/trial"
)

var titles = map[trial.Verdict]string{trial.AtRest: "At rest", trial.NotAtRest: "Not at rest", trial.RefusedChange: "Refused"}

// mostMarkdown is less than the comment of a pull request may have.
const mostMarkdown = 60_000

// Markdown prints a result for the comment of a pull request: the verdict, and the sections of the text folded, in code, so that nothing that
// a cluster says is markup.
func Markdown(out io.Writer, r *trial.Result) error {
	text := &strings.Builder{}
	fmt.Fprintf(text, "### sqube try: %s\n\n", titles[r.Verdict])
	v := &printer{}
	v.section("")
	v.paragraph("", headline(&r.Tried))
	v.paragraph("", verdict(r))
	fence(text, "", v.sections[0].String())
	p := &printer{}
	p.all(r)
	for _, s := range p.sections {
		part := &strings.Builder{}
		opened, language := "", ""
		if s.title == treeTitle {
			opened, language = " open", "diff"
		}
		fmt.Fprintf(part, "\n<details%s><summary>%s</summary>\n\n", opened, s.title)
		fence(part, language, s.String())
		part.WriteString("\n</details>\n")
		if text.Len()+part.Len() > mostMarkdown {
			fmt.Fprintf(text, "\n%s: left out, since it is too long here.\n", s.title)
			continue
		}
		text.WriteString(part.String())
	}
	_, err := io.WriteString(out, text.String())
	return err
}

var ticks = regexp.MustCompile("`+")

// fence prints lines as code, between marks that are longer than any in them.
func fence(text *strings.Builder, language, lines string) {
	longest := 2
	for _, run := range ticks.FindAllString(lines, -1) {
		longest = max(longest, len(run))
	}
	mark := strings.Repeat("`", longest+1)
	fmt.Fprintf(text, "%s%s\n%s\n%s\n", mark, language, strings.TrimRight(lines, "\n"), mark)
}
