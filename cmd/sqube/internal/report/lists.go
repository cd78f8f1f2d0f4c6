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
		p.paragraph("  ", fmt.Sprintf("%s, since %s: %s", such(&pod.Pod, pod.Alike+1), pod.Since, pod.Reason))
	}
	p.more(len(all) - mostEvents)
}

// such names one of so many objects.
func such(o *trial.Reference, n int) string {
	if n < 2 {
		return named(o)
	}
	return fmt.Sprintf("%d %ss such as %s/%s", n, o.Kind, o.Namespace, o.Name)
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
	first, alike := grouped(all, func(e *trial.Eviction) string { return e.Reason })
	for i, e := range first[:min(len(first), mostEvents)] {
		p.paragraph("  ", fmt.Sprintf("%s  %s: %s", e.At, such(&e.Pod, alike[i]), e.Reason))
	}
	p.more(len(first) - mostEvents)
}

// grouped returns the first of those that have the same key, and how many have it.
func grouped[T any](all []T, key func(*T) string) (first []*T, alike []int) {
	places := map[string]int{}
	for i := range all {
		k := key(&all[i])
		place, known := places[k]
		if !known {
			place = len(first)
			places[k] = place
			first, alike = append(first, &all[i]), append(alike, 0)
		}
		alike[place]++
	}
	return first, alike
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
	var normal []string
	warnings := slices.DeleteFunc(slices.Clone(all), func(e trial.Event) bool {
		if e.Type != "Warning" {
			normal = addNew(normal, e.Reason)
		}
		return e.Type != "Warning"
	})
	first, alike := grouped(warnings, func(e *trial.Event) string { return e.Reason + " " + e.Object.Kind + " " + e.Message })
	for i, e := range first[:min(len(first), mostEvents)] {
		repeated := ""
		if alike[i] == 1 {
			repeated = times(e.Times)
		}
		p.paragraph("  ", fmt.Sprintf("%s  %s  %s: %s%s", e.At, e.Reason, such(&e.Object, alike[i]), e.Message, repeated))
	}
	p.more(len(first) - mostEvents)
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
