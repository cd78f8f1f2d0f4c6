package postgres_test

import (
	"testing"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/test/harness"
)

// TestFalseNotifications sends notifications as any role of the database can, and as another log in it would. They must neither
// make the revision jump nor end what listens.
func TestFalseNotifications(t *testing.T) {
	e := open(t, harness.Postgres(t))
	awaitRevision := func(least int64) {
		t.Helper()
		for heard := int64(-1); heard < least; {
			select {
			case heard = <-e.Notifications():
			case <-time.After(time.Minute):
				t.Fatalf("no notification of revision %d", least)
			}
		}
	}
	create := func(key string) int64 {
		t.Helper()
		committed, err := e.Commit(t.Context(), []dialect.Write{{Operation: dialect.Create, Resource: "things", Key: key, Labels: "{}", Fields: "{}", Value: []byte("{}")}})
		harness.Must(t, err)
		awaitRevision(committed.Last)
		return committed.Last
	}
	awaitRevision(0) // it listens now
	first := create("a")
	for _, payload := range []string{"9223372036854775807", "-1", "", "much"} {
		harness.Must(t, e.Exec(t.Context(), "NOTIFY sqube, '"+payload+"'"))
	}
	for i, key := range []string{"b", "c"} {
		if got, want := create(key), first+1+int64(i); got != want {
			t.Errorf("the revision is %d, want %d", got, want)
		}
	}
}
