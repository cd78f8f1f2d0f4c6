package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/dialect/sqlite"
	"github.com/sqube/sqube/sqlstore/history"
	"github.com/sqube/sqube/sqlstore/origin"
	"github.com/sqube/sqube/test/harness"
)

// BenchmarkReopen measures opening and closing one of many databases, which was closed, and has no rows.
func BenchmarkReopen(b *testing.B) {
	path := filepath.Join(b.TempDir(), "sqube.db")
	reopen := func() {
		e, err := sqlite.OpenWith(b.Context(), path, sqlite.Options{Many: true})
		harness.Must(b, err)
		harness.Must(b, e.Close())
	}
	reopen()
	defer reportCPU(b)()
	for b.Loop() {
		reopen()
	}
}

// BenchmarkFork measures a fork of 10,000 objects of 1 KB, of which a tenth has changed since: now and at the moment before.
func BenchmarkFork(b *testing.B) {
	fill := func(e *sqlite.Engine) (moment int64) {
		value := []byte(fmt.Sprintf(`{"text":%q}`, strings.Repeat("text ", 200)))
		for n := 0; n < 11_000; n += 1000 {
			var group []dialect.Write
			for i := range 1000 {
				w := create(fmt.Sprint("ns/", n+i), value)
				if n == 10_000 {
					w = create(fmt.Sprint("ns/", i*10), []byte(`{"text":"changed"}`))
					w.Operation, w.Replaces = dialect.Update, int64(i*10+2)
				}
				group = append(group, w)
			}
			committed, err := e.Commit(b.Context(), group)
			harness.Must(b, err)
			if n < 10_000 {
				moment = committed.Last
			}
		}
		for n := 1; n > 0; {
			var err error
			n, err = e.Compact(b.Context(), moment+500, 1000, history.Pack(nil))
			harness.Must(b, err)
		}
		return moment
	}
	file, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "sqube.db"))
	harness.Must(b, err)
	defer file.Close()
	memory, err := sqlite.OpenMemory(b.Context())
	harness.Must(b, err)
	defer memory.Close()
	fill(memory)
	for name, at := range map[string]int64{"now": 0, "before": fill(file)} {
		change := func(e *sqlite.Engine) error {
			_, err := origin.Fork(context.Background(), e, origin.At{Revision: at})
			return err
		}
		b.Run("file/"+name, func(b *testing.B) {
			to := filepath.Join(b.TempDir(), "fork.db")
			defer reportCPU(b)()
			for b.Loop() {
				harness.Must(b, errors.Join(file.Clone(b.Context(), to), sqlite.Adopt(b.Context(), to, change)))
				harness.Must(b, os.Remove(to))
			}
		})
		b.Run("memory/"+name, func(b *testing.B) {
			defer reportCPU(b)()
			for b.Loop() {
				fork, err := memory.CloneMemory(b.Context())
				harness.Must(b, err)
				harness.Must(b, errors.Join(change(fork), fork.Close()))
			}
		})
	}
}

func reportCPU(b *testing.B) func() {
	cpu := func() time.Duration {
		var r syscall.Rusage
		harness.Must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &r))
		return time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	begin := cpu()
	return func() { b.ReportMetric(float64(cpu()-begin)/float64(b.N)/1e6, "cpu-ms/op") }
}
