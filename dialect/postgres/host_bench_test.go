package postgres_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/dialect/postgres"
	"github.com/sqube/sqube/test/harness"
)

// openedHost opens a new database for clusters.
func openedHost(b *testing.B) *postgres.Host {
	b.Helper()
	h, err := postgres.OpenHost(b.Context(), postgres.Database{DSN: harness.Postgres(b)}, 0)
	harness.Must(b, err)
	b.Cleanup(func() { harness.Must(b, h.Close()) })
	return h
}

// BenchmarkMake makes clusters' databases, four at a time.
func BenchmarkMake(b *testing.B) {
	h := openedHost(b)
	var making sync.WaitGroup
	next := make(chan int)
	for range 4 {
		making.Go(func() {
			for n := range next {
				if err := h.Make(b.Context(), fmt.Sprintf("n%d", n), "", empty); err != nil {
					b.Error(err)
				}
			}
		})
	}
	n := 0
	for b.Loop() {
		next <- n
		n++
	}
	close(next)
	making.Wait()
	size, err := h.Bytes(b.Context(), "n0")
	harness.Must(b, err)
	b.ReportMetric(float64(size)/1024, "KiB/cluster")
}

// BenchmarkMakeFork forks a cluster of 10,000 objects of 1 KiB.
func BenchmarkMakeFork(b *testing.B) {
	h := openedHost(b)
	harness.Must(b, h.Make(b.Context(), "original", "", func(e *postgres.Engine) error {
		return e.Load(b.Context(), dialect.Position{Revision: 10001}, func(add func(*dialect.LogRow) error) error {
			for n := range 10000 {
				w := created(fmt.Sprintf("namespace-%d/object-%d", n%50, n))[0]
				w.Value, w.WrittenAt = []byte(`{"data":"`+strings.Repeat("x", 1000)+`"}`), time.Now().UnixMilli()
				if err := add(&dialect.LogRow{ID: int64(n + 2), Write: w}); err != nil {
					return err
				}
			}
			return nil
		}, nil)
	}))
	n := 0
	for b.Loop() {
		harness.Must(b, h.Make(b.Context(), fmt.Sprintf("fork%d", n), "original", empty))
		n++
	}
}

// BenchmarkWakeDatabase owns, opens, reads and leaves a cluster's database.
func BenchmarkWakeDatabase(b *testing.B) {
	h := openedHost(b)
	harness.Must(b, h.Make(b.Context(), "one", "", empty))
	for b.Loop() {
		_, _, err := h.Acquire(b.Context(), "one")
		harness.Must(b, err)
		e, err := h.Open("one")
		harness.Must(b, err)
		harness.Must(b, e.Query(b.Context(), "SELECT revision FROM counter", nil, func(dialect.Row) error { return nil }))
		harness.Must(b, e.Close())
	}
}

// BenchmarkClusterCommit commits groups of one to a cluster.
func BenchmarkClusterCommit(b *testing.B) {
	h := openedHost(b)
	harness.Must(b, h.Make(b.Context(), "one", "", empty))
	_, _, err := h.Acquire(b.Context(), "one")
	harness.Must(b, err)
	e, err := h.Open("one")
	harness.Must(b, err)
	n := 0
	for b.Loop() {
		_, err := e.Commit(b.Context(), created(fmt.Sprint(n)))
		harness.Must(b, err)
		n++
	}
}
