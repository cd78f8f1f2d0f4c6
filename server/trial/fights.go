package trial

import (
	"encoding/json"
	"fmt"

	"github.com/sqube/sqube/sqlstore/fieldpath"
)

// contest follows the fields of an object, to find one that goes to and fro.
type contest struct {
	effect *effect
	last   map[string]any
	fields map[string]*contestedField
}

type contestedField struct {
	had   map[string]bool // values
	by    []string
	back  int // how often it got a value that it had had
	times int // how often it was changed
}

func newContest(e *effect) *contest {
	return &contest{effect: e, last: stable(decode(e.life.before)), fields: map[string]*contestedField{}}
}

// stable returns an object without what changes by itself.
func stable(object map[string]any) map[string]any {
	if metadata, _ := object["metadata"].(map[string]any); metadata != nil {
		for _, name := range []string{"resourceVersion", "managedFields", "generation"} {
			delete(metadata, name)
		}
	}
	delete(object, "status")
	return object
}

// add adds a version.
func (c *contest) add(w *write, object map[string]any) {
	object = stable(object)
	if c.last != nil && object != nil {
		for _, d := range fieldpath.DifferencesOf(c.last, object) {
			f := c.fields[d.Path]
			if f == nil {
				f = &contestedField{had: map[string]bool{valueText(d.Old): true}}
				c.fields[d.Path] = f
			}
			now := valueText(d.New)
			if f.had[now] {
				f.back++
			}
			f.had[now] = true
			f.by = appendNew(f.by, w.by)
			f.times++
		}
	}
	c.last = object
}

func valueText(value any) string {
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(raw)
}

// fight returns the field that is contested most; nil if none is. That one author changes something is none, unless it is without end.
func (c *contest) fight(restless bool) *Fight {
	var found *Fight
	for path, f := range c.fields {
		if !restless && (f.back < contested || len(f.by) < 2) {
			continue
		}
		one := &Fight{Object: c.effect.Reference, Path: path, By: f.by, Times: f.times}
		if found == nil || one.Times > found.Times || one.Times == found.Times && one.Path < found.Path {
			found = one
		}
	}
	if found == nil && restless {
		found = &Fight{Object: c.effect.Reference, Path: ".status", By: c.effect.life.by(), Times: len(c.effect.life.writes)}
	}
	return found
}
