package main

import (
	"testing"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/test/harness"
)

// TestNightlyRestores restores an old backup each night, for 50 years. The counter rises above all that can have been issued each time,
// and stays below what clients in JavaScript can tell apart.
func TestNightlyRestores(t *testing.T) {
	night := dialect.FirstTime.AddDate(4, 0, 0)
	backup := dialect.End{Revision: 5_000_000, WrittenAt: night.AddDate(-3, 0, 0).UnixMilli()}
	newer := dialect.End{Revision: 6_000_000_000, WrittenAt: night.AddDate(-1, 0, 0).UnixMilli()} // of the same cluster, after a jump
	replaced := dialect.End{Revision: 9_000_000, WrittenAt: night.Add(-time.Hour).UnixMilli()}
	for i := range 50 * 365 {
		source := backup
		if i%3 == 0 {
			source = newer
		}
		at, err := jumpedCounter(night, source, replaced)
		harness.Must(t, err)
		if lived := source.Revision + int64(night.Sub(time.UnixMilli(source.WrittenAt))/time.Second)*50_000; at.Revision <= replaced.Revision || at.Revision <= lived || at.Compacted != at.Revision {
			t.Fatalf("in night %d, the counter is %+v, where %d may be in use here, and %d where the backup is from", i, at, replaced.Revision, lived)
		}
		replaced = dialect.End{Revision: at.Revision + 1_000_000, WrittenAt: night.Add(20 * time.Hour).UnixMilli()}
		night = night.AddDate(0, 0, 1)
	}
	if replaced.Revision > dialect.MaxExact {
		t.Errorf("after all, the counter is %d", replaced.Revision)
	}
}

// TestNoRoomToRestore refuses ends near the last number of 64 bits, without an overflow.
func TestNoRoomToRestore(t *testing.T) {
	for _, end := range []int64{dialect.MaxRevision, 1<<63 - 1, -1} {
		if at, err := jumpedCounter(time.Now(), dialect.End{}, dialect.End{Revision: end}); err == nil {
			t.Errorf("a log that ends at %d goes on at %+v", end, at)
		}
	}
}
