package history

import (
	"reflect"
	"testing"
	"time"

	"github.com/sqube/sqube/test/harness"
)

func TestSaveAndLoad(t *testing.T) {
	r := NewRecorder()
	o := Object{Name: "x", UID: "u", Version: 7, Mark: "1-1", Group: "a"}
	r.Operation(&Operation{Client: 1, Call: time.Second, Return: 2 * time.Second, Verb: Create, Key: Key{"things", "x"}, Outcome: Done, Object: o})
	r.Operation(&Operation{Verb: Get, Key: Key{"things", "y"}, Outcome: Absent, Error: "404"})
	r.List(&List{Resource: "things", Asked: 7, Exact: true, Pages: []Page{{Version: 7, Objects: []Object{o}}}})
	r.Watch(&Watch{Resource: "things", From: 3, Initial: true, Events: []Event{{Type: Added, Object: o}, {Type: Bookmark, EndsInitial: true}}, End: "EOF"})
	r.Informer(&Informer{Resource: "things", Events: []Event{{Type: Added, Object: o}}})
	dir := t.TempDir()
	harness.Must(t, r.History().Save(dir))
	if got, err := Load(dir); err != nil || !reflect.DeepEqual(got, r.History()) {
		t.Errorf("loaded %v, %v", got, err)
	}
}
