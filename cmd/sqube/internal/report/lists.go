package report

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/server/trial"
)

func (p *printer) timeline(all []trial.Moment) {
	if len(all) == 0 {
		return
	}
	p.section("Time line")
	widest, last := 0, ""
	for _, m := range all[:min(len(all), mostLines)] {
		widest = max(widest, utf8.RuneCountInString(clip(terminal.Printable(named(&m.Object)))))
	}
	for _, m := range all[:min(len(all), mostLines)] {
		name := clip(terminal.Printable(named(&m.Object)))
		shown := name
		if name == last {
			shown = ""
		}
		last = name
		p.paragraph(fmt.Sprintf("%8s  %s  ", m.At, pad(shown, widest)), m.Text)
	}
	p.more(len(all) - mostLines)
}

// clip cuts a name that would leave no room for what is said of it.
func clip(name string) string {
	const most = 50
	if runes := []rune(name); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return name
}

func (p *printer) more(n int) {
	if n > 0 {
		p.line(fmt.Sprintf("  … and %d more", n))
	}
}

func (p *printer) refused(all []trial.Refusal) {
	if len(all) == 0 {
		return
	}
	p.section("Refused")
	for _, r := range all[:min(len(all), mostEvents)] {
		p.paragraph("  ", r.Message)
	}
	p.more(len(all) - mostEvents)
}

func (p *printer) pending(all []trial.PendingPod) {
	if len(all) == 0 {
		return
	}
	p.section("Pending at the end")
	for _, pod := range all[:min(len(all), mostEvents)] {
		which := named(&pod.Pod)
		if pod.Alike > 0 {
			which = fmt.Sprintf("%d Pods such as %s/%s", pod.Alike+1, pod.Pod.Namespace, pod.Pod.Name)
		}
		p.paragraph("  ", fmt.Sprintf("%s, since %s: %s", which, pod.Since, pod.Reason))
	}
	p.more(len(all) - mostEvents)
}

func (p *printer) held(all []trial.Hold) {
	if len(all) == 0 {
		return
	}
	p.section("Held up")
	for _, h := range all[:min(len(all), mostEvents)] {
		by := ""
		if h.Kind != "other" {
			by = strings.TrimSpace(h.Kind+" "+h.By) + ": "
		}
		p.paragraph("  ", fmt.Sprintf("%s  %s: %s%s%s", h.At, named(&h.Object), by, h.Message, times(h.Times)))
	}
	p.more(len(all) - mostEvents)
}

func times(n int) string {
	if n < 2 {
		return ""
	}
	return fmt.Sprintf(" (%d times)", n)
}

func (p *printer) evicted(all []trial.Eviction) {
	if len(all) == 0 {
		return
	}
	p.section("Evicted")
	for _, e := range all[:min(len(all), mostEvents)] {
		p.paragraph("  ", fmt.Sprintf("%s  %s: %s", e.At, named(&e.Pod), e.Reason))
	}
	p.more(len(all) - mostEvents)
}

func (p *printer) fights(all []trial.Fight) {
	if len(all) == 0 {
		return
	}
	p.section("Never at rest")
	for _, f := range all[:min(len(all), mostEvents)] {
		how := "to and fro"
		if len(f.By) == 1 {
			how = "again and again"
		}
		p.paragraph("  ", fmt.Sprintf("%s %s: changed %s by %s, %d times", named(&f.Object), f.Path, how, strings.Join(f.By, " and "), f.Times))
	}
	p.more(len(all) - mostEvents)
}

func (p *printer) webhooks(all []trial.Webhook) {
	if len(all) == 0 {
		return
	}
	p.section("Webhooks")
	for _, w := range all[:min(len(all), mostEvents)] {
		what := "would have been called"
		if w.Called {
			what = "was called"
		}
		p.paragraph("  ", w.Name+": "+what+times(w.Times))
	}
	p.more(len(all) - mostEvents)
}

func (p *printer) warnings(all []string) {
	if len(all) == 0 {
		return
	}
	p.section("Warnings of the API")
	for _, w := range all[:min(len(all), mostEvents)] {
		p.paragraph("  ", w)
	}
	p.more(len(all) - mostEvents)
}

// events prints the warnings that are not told elsewhere, and of the others the reasons.
func (p *printer) events(r *trial.Result) {
	told := map[string]bool{}
	for _, pod := range r.Pending {
		told[pod.Reason] = true
	}
	for _, h := range r.Held {
		told[h.Message] = true
	}
	all := slices.DeleteFunc(slices.Clone(r.Events), func(e trial.Event) bool { return told[e.Message] })
	if len(all) == 0 {
		return
	}
	p.section("New in Events")
	shown, more := 0, 0
	var normal []string
	for _, e := range all {
		switch {
		case e.Type != "Warning":
			normal = addNew(normal, e.Reason)
		case shown == mostEvents:
			more++
		default:
			shown++
			p.paragraph("  ", fmt.Sprintf("%s  %s  %s: %s%s", e.At, e.Reason, named(&e.Object), e.Message, times(e.Times)))
		}
	}
	p.more(more)
	if len(normal) > 0 {
		text := "normal: " + strings.Join(normal[:min(len(normal), mostKinds)], ", ")
		if len(normal) > mostKinds {
			text += fmt.Sprintf(" and %d more", len(normal)-mostKinds)
		}
		p.paragraph("  ", text)
	}
}

func addNew(list []string, one string) []string {
	for _, other := range list {
		if other == one {
			return list
		}
	}
	return append(list, one)
}

func (p *printer) notRun(all []trial.NotRun) {
	if len(all) == 0 {
		return
	}
	kinds := map[string]bool{}
	var texts []string
	for _, n := range all {
		kinds[n.Kind] = true
		texts = append(texts, fmt.Sprintf("%s (%s)", n.Kind, n.Why))
	}
	p.section("Not simulated")
	p.paragraph("  ", count(len(kinds), "kind is", "kinds are")+" managed by controllers that did not run: "+strings.Join(texts[:min(len(texts), mostKinds)], ", "))
	p.more(len(texts) - mostKinds)
}
