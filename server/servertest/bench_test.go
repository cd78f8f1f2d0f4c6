package servertest_test

import (
	"testing"

	"github.com/sqube/sqube/server/servertest"
)

// BenchmarkStart measures how long a server takes until it is ready, and BenchmarkStop how long it takes to stop.
func BenchmarkStart(b *testing.B) { benchmark(b, true) }

// BenchmarkStop: see BenchmarkStart.
func BenchmarkStop(b *testing.B) { benchmark(b, false) }

func benchmark(b *testing.B, start bool) {
	first, err := servertest.Start(servertest.Options{}) // initializes Kubernetes' libraries, once per process
	if err != nil {
		b.Fatal(err)
	}
	if err := first.Stop(); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	for range b.N {
		pause(b, !start)
		s, err := servertest.Start(servertest.Options{})
		if err != nil {
			b.Fatal(err)
		}
		pause(b, start)
		if err := s.Stop(); err != nil {
			b.Fatal(err)
		}
		pause(b, false)
	}
}

// pause stops or starts the timer.
func pause(b *testing.B, stop bool) {
	if stop {
		b.StopTimer()
	} else {
		b.StartTimer()
	}
}
