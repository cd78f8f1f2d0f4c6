package sqlstore

import (
	"testing"

	"github.com/sqube/sqube/dialect"
)

// TestEncodings checks that encodings are kept as long as their rows are in memory and nothing else needs the space.
func TestEncodings(t *testing.T) {
	const budget = 1 << 20
	c := newPods(t, budget, 10)
	s := &Store{cache: c}
	write := func(revision int64, i int, op dialect.Operation) *Record {
		change := &Change{Resource: indexed, Operation: op, Record: *row(revision, i)}
		c.apply(revision, []*Change{change})
		return &change.Record
	}
	first := write(2, 3, dialect.Update)
	if got := s.KeepEncoding(indexed, first, []byte("form")); string(got) != "form" {
		t.Errorf("the encoding is kept as %q", got)
	}
	if got := s.Encoding(2); string(got) != "form" {
		t.Errorf("the encoding is %q", got)
	}
	second := write(3, 3, dialect.Update)
	if got := s.Encoding(2); got != nil {
		t.Errorf("a replaced row has the encoding %q", got)
	}
	if got := s.KeepEncoding(indexed, first, []byte("old")); got != nil {
		t.Errorf("a row that is not in memory keeps the encoding %q", got)
	}
	if got := s.Encoding(2); got != nil {
		t.Errorf("a row that is not in memory gets the encoding %q", got)
	}
	s.KeepEncoding(Resource{Name: "none"}, first, []byte("none"))
	s.KeepEncoding(indexed, second, make([]byte, budget))
	if got := s.Encoding(3); got != nil {
		t.Errorf("an encoding of %d bytes is kept with a budget of %d", len(got), budget)
	}
	s.KeepEncoding(indexed, second, []byte("form"))
	write(4, 3, dialect.Delete)
	if got := s.Encoding(3); got != nil {
		t.Errorf("a deleted row has the encoding %q", got)
	}

	// Rows take precedence over encodings.
	var rows []*Record
	for i := range int64(20) {
		rows = append(rows, write(5+i, 100+int(i), dialect.Create))
		s.KeepEncoding(indexed, rows[i], make([]byte, budget/40))
	}
	if kept := len(c.encodings.byRevision); kept != 20 {
		t.Errorf("%d encodings of 20 are kept", kept)
	}
	large := row(30, 500)
	large.Value = make([]byte, budget*3/4)
	c.apply(30, []*Change{{Resource: indexed, Operation: dialect.Create, Record: *large}})
	if c.collections[indexed].rows == nil || len(c.encodings.byRevision) == 0 || len(c.encodings.byRevision) == 20 || c.held() > budget {
		t.Errorf("%d encodings are kept, %d bytes in all", len(c.encodings.byRevision), c.held())
	}
	huge := row(31, 501)
	huge.Value = make([]byte, budget/2)
	c.apply(31, []*Change{{Resource: indexed, Operation: dialect.Create, Record: *huge}})
	c.settle()
	s.KeepEncoding(indexed, huge, []byte("form"))
	if !c.collections[indexed].bare || len(c.encodings.byRevision) != 0 {
		t.Errorf("%d encodings of rows without values are kept", len(c.encodings.byRevision))
	}
	c.reset(40)
	if len(c.encodings.byRevision) != 0 || c.encodings.bytes.Load() != 0 {
		t.Errorf("%d encodings remain, of %d bytes", len(c.encodings.byRevision), c.encodings.bytes.Load())
	}
}
