package apistorage_test

import (
	"math/rand/v2"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"

	"github.com/sqube/sqube/sqlstore/storetest"
	"github.com/sqube/sqube/test/engines"
)

// TestNamesOfEveryLength stores objects with the longest possible names. Longer ones are rejected, at the same length on both
// engines.
func TestNamesOfEveryLength(t *testing.T) {
	for engine, open := range map[string]storetest.Opener{"sqlite": engines.SQLite, "postgres": engines.Postgres} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, open)
			random := rand.New(rand.NewPCG(1, 2))
			for length, fits := range map[int]bool{1: true, 253: true, 2045: true, 2046: false, 10000: false} {
				name := make([]byte, length) // of letters that databases can't compress
				for i := range name {
					name[i] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:@"[random.IntN(64)]
				}
				pod := &example.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: string(name)}}
				err := f.Create(t.Context(), "/pods/ns/"+pod.Name, pod, nil, 0)
				if fits && err != nil || !fits && !apierrors.IsBadRequest(err) {
					t.Errorf("an object with a name of %d bytes: %v", length, err)
				}
				err = f.Get(t.Context(), "/pods/ns/"+pod.Name, storage.GetOptions{}, &example.Pod{})
				if fits && err != nil || !fits && !storage.IsNotFound(err) {
					t.Errorf("reading an object with a name of %d bytes: %v", length, err)
				}
			}
		})
	}
}
