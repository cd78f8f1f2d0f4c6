package servertest_test

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sqube/sqube/server/servertest"
)

// further is how many servers BenchmarkFurther starts beside the first.
const further = 20

// BenchmarkFurther measures what a further server in the same process costs: to start, and while nothing happens. Its profiles, with
// -cpuprofile and -memprofile, are of all servers.
func BenchmarkFurther(b *testing.B) {
	servertest.Run(b, servertest.Options{})
	for range b.N {
		settle()
		before := used(b)
		for range further {
			servertest.Run(b, servertest.Options{})
		}
		started := used(b)
		settle()
		idle := used(b)
		time.Sleep(idlePeriod)
		after := used(b)
		b.ReportMetric(float64(started.cpu-before.cpu)/further/1e6, "cpu-ms/server")
		b.ReportMetric(float64(idle.heap-before.heap)/further/(1<<20), "heap-MiB/server")
		b.ReportMetric(float64(idle.rss-before.rss)/further/(1<<20), "rss-MiB/server")
		b.ReportMetric(float64(idle.goroutines-before.goroutines)/further, "goroutines/server")
		b.ReportMetric(float64(after.cpu-idle.cpu)/float64(idlePeriod)*100/further, "%core/server")
	}
}

const (
	// settling is how long servers have work after their start.
	settling = 10 * time.Second
	// idlePeriod is how long their idle CPU is measured.
	idlePeriod = 30 * time.Second
)

func settle() {
	time.Sleep(settling)
	for range 3 { // finalizers free more
		runtime.GC()
	}
}

// usage is what this process uses.
type usage struct {
	cpu        time.Duration
	heap, rss  int
	goroutines int
}

func used(b *testing.B) usage {
	b.Helper()
	var resources syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &resources); err != nil {
		b.Fatal(err)
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		b.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(statm))[1])
	if err != nil {
		b.Fatal(err)
	}
	return usage{
		cpu:  time.Duration(resources.Utime.Nano() + resources.Stime.Nano()),
		heap: int(memory.HeapAlloc), rss: pages * os.Getpagesize(), goroutines: runtime.NumGoroutine(),
	}
}
