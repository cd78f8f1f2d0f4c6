package sqlite_test

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/sqube/sqube/dialect/sqlite"
	"github.com/sqube/sqube/test/harness"
)

func cpu() time.Duration {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// BenchmarkReopen measures opening and closing a database that was closed.
func BenchmarkReopen(b *testing.B) {
	path := filepath.Join(b.TempDir(), "sqube.db")
	many := sqlite.Options{Many: true}
	e, err := sqlite.OpenWith(b.Context(), path, many)
	harness.Must(b, err)
	harness.Must(b, e.Close())
	begin := cpu()
	for b.Loop() {
		many := sqlite.Options{Many: true}
		e, err := sqlite.OpenWith(b.Context(), path, many)
		harness.Must(b, err)
		harness.Must(b, e.Close())
	}
	b.ReportMetric(float64(cpu()-begin)/float64(b.N)/1e6, "cpu-ms/op")
}
