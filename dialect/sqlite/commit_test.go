package sqlite_test

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/sqube/sqube/dialect"
)

// TestCommitEndsWithItsContext checks that a group whose context ends while it is written is not committed, with the context's error, and that
// the next group is.
func TestCommitEndsWithItsContext(t *testing.T) {
	e := open(t, filepath.Join(t.TempDir(), "sqube.db"))
	last := commit(t, e, []dialect.Write{create("default/first", []byte("{}"))}).Last
	value, ended := bytes.Repeat([]byte("x"), 1000), 0
	for n := 0; ended == 0; n++ {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Duration(n%20)*time.Millisecond, cancel)
		group := make([]dialect.Write, 1000)
		for i := range group {
			group[i] = create("default/"+strconv.Itoa(n)+"-"+strconv.Itoa(i), value)
		}
		began := ctx.Err() == nil
		committed, err := e.Commit(ctx, group)
		cancel()
		switch {
		case err == nil:
			last = committed.Last
		case !errors.Is(err, context.Canceled):
			t.Fatalf("got %v", err)
		case began && n%20 > 0:
			ended++
		}
	}
	if next := commit(t, e, []dialect.Write{create("default/last", []byte("{}"))}).Last; next != last+1 {
		t.Errorf("the revision after %d is %d", last, next)
	}
}
