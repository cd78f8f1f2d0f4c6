package servertest_test

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

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

// BenchmarkFrom measures a start on a backup with 10,000 objects.
func BenchmarkFrom(b *testing.B) {
	file := backup(b, func(s *servertest.Server) {
		maps := kubernetes.NewForConfigOrDie(s.Config).CoreV1().ConfigMaps("default")
		var creating errgroup.Group
		creating.SetLimit(32)
		for i := range 10_000 {
			creating.Go(func() error {
				object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("of-", i)}, Data: map[string]string{"text": strings.Repeat("text ", 200)}}
				_, err := maps.Create(b.Context(), object, metav1.CreateOptions{})
				return err
			})
		}
		if err := creating.Wait(); err != nil {
			b.Fatal(err)
		}
	})
	for b.Loop() {
		s, err := servertest.Start(servertest.Options{From: file})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := s.Stop(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
