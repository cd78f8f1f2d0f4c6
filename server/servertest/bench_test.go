package servertest_test

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sqube/sqube/server/servertest"
	"github.com/sqube/sqube/test/harness"
)

// BenchmarkStart measures how long a server takes until it is ready.
func BenchmarkStart(b *testing.B) {
	first, err := servertest.Start(servertest.Options{}) // initializes Kubernetes' libraries, once per process
	harness.Must(b, err)
	harness.Must(b, first.Stop())
	for b.Loop() {
		s, err := servertest.Start(servertest.Options{})
		harness.Must(b, err)
		b.StopTimer()
		harness.Must(b, s.Stop())
		b.StartTimer()
	}
}

// fill creates ConfigMaps of a kilobyte.
func fill(b *testing.B, s *servertest.Server, n int) {
	maps := kubernetes.NewForConfigOrDie(s.Config).CoreV1().ConfigMaps("default")
	var creating errgroup.Group
	creating.SetLimit(32)
	for i := range n {
		creating.Go(func() error {
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("of-", i)}, Data: map[string]string{"text": strings.Repeat("text ", 200)}}
			_, err := maps.Create(b.Context(), object, metav1.CreateOptions{})
			return err
		})
	}
	harness.Must(b, creating.Wait())
}

// BenchmarkFrom measures a start on a backup with 10,000 objects.
func BenchmarkFrom(b *testing.B) {
	file := backup(b, func(s *servertest.Server) {
		fill(b, s, 10_000)
	})
	for b.Loop() {
		s, err := servertest.Start(servertest.Options{From: file})
		harness.Must(b, err)
		b.StopTimer()
		harness.Must(b, s.Stop())
		b.StartTimer()
	}
}

// afterAnswer is how long a server that has woken up has work.
const afterAnswer = 2 * time.Second

// BenchmarkWake measures a further server that starts on a database with 1,000 objects: how long the first requests of an ordinary user take from
// the start, and what the start costs until then, until the server is ready, and in all.
func BenchmarkWake(b *testing.B) {
	file := backup(b, func(s *servertest.Server) {
		fill(b, s, 1000)
		allow(b, s, "jane", "edit")
	})
	servertest.Run(b, servertest.Options{}) // initializes Kubernetes' libraries
	var firsts []time.Duration
	var first, write, ready, all time.Duration
	for range b.N + 1 {
		began, before := time.Now(), used(b)
		w := wake(b, file)
		maps := kubernetes.NewForConfigOrDie(w.server.Loopback("jane")).CoreV1().ConfigMaps("default")
		_, err := maps.Get(b.Context(), "of-1", metav1.GetOptions{})
		harness.Must(b, err)
		answered, took := used(b), time.Since(began)
		close(w.later)
		made, err := maps.Create(b.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "new-"}}, metav1.CreateOptions{})
		harness.Must(b, err)
		written := used(b)
		harness.Must(b, w.server.Wait(b.Context()))
		prepared := used(b)
		time.Sleep(afterAnswer)
		settled := used(b)
		harness.Must(b, maps.Delete(b.Context(), made.Name, metav1.DeleteOptions{}))
		w.sleep(b)
		firsts = append(firsts, took)
		if len(firsts) == 1 {
			continue // builds what the process keeps
		}
		first += answered.cpu - before.cpu
		write += written.cpu - before.cpu
		ready += prepared.cpu - before.cpu
		all += settled.cpu - before.cpu
	}
	firsts = firsts[1:]
	slices.Sort(firsts)
	n := float64(b.N) * 1e6
	b.ReportMetric(float64(firsts[len(firsts)/2])/1e6, "first-ms")
	b.ReportMetric(float64(first)/n, "first-cpu-ms")
	b.ReportMetric(float64(write)/n, "write-cpu-ms")
	b.ReportMetric(float64(ready)/n, "ready-cpu-ms")
	b.ReportMetric(float64(all)/n, "all-cpu-ms")
}

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
	settling = 25 * time.Second
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
	harness.Must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &resources))
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	statm, err := os.ReadFile("/proc/self/statm")
	harness.Must(b, err)
	pages, err := strconv.Atoi(strings.Fields(string(statm))[1])
	harness.Must(b, err)
	return usage{
		cpu:  time.Duration(resources.Utime.Nano() + resources.Stime.Nano()),
		heap: int(memory.HeapAlloc), rss: pages * os.Getpagesize(), goroutines: runtime.NumGoroutine(),
	}
}

// BenchmarkFork measures the start of a fork of a running server with 1,000 objects.
func BenchmarkFork(b *testing.B) {
	base := servertest.Run(b, servertest.Options{CRDs: []string{"testdata/crds"}})
	maps := kubernetes.NewForConfigOrDie(base.Config).CoreV1().ConfigMaps("default")
	for i := range 1000 {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("of-", i)}, Data: map[string]string{"text": strings.Repeat("text ", 200)}}
		_, err := maps.Create(b.Context(), object, metav1.CreateOptions{})
		harness.Must(b, err)
	}
	var cpu time.Duration
	for b.Loop() {
		before := used(b)
		s := base.Fork(b, servertest.Options{})
		cpu += used(b).cpu - before.cpu
		b.StopTimer()
		harness.Must(b, s.Stop())
		b.StartTimer()
	}
	b.ReportMetric(float64(cpu)/float64(b.N)/1e6, "cpu-ms/op")
}
