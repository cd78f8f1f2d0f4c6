package crd

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// slowDefinitions returns one definition, once it is told to.
type slowDefinitions struct {
	reads int
	ready chan struct{}
}

func (s *slowDefinitions) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	s.reads++
	select {
	case <-s.ready:
		return &apiextensions.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", Generation: 1}}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// TestFirstRequests has many requests come first for a definition. It is read once, and a request whose client leaves ends.
func TestFirstRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stored := &slowDefinitions{ready: make(chan struct{})}
		u := &inUse{whole: wholeDefinitions{stored}, byName: map[string]*usedDefinition{}}
		slim := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com", UID: "u", Generation: 1}}
		left, leave := context.WithCancel(t.Context())
		results, impatient := make(chan error, 8), make(chan error, 1)
		for range cap(results) {
			go func() {
				d, err := u.await(t.Context(), slim)
				if err == nil && d == slim {
					err = errors.New("it has no schemas")
				}
				results <- err
			}()
		}
		go func() {
			_, err := u.await(left, slim)
			impatient <- err
		}()
		synctest.Wait()
		leave()
		if err := <-impatient; err == nil {
			t.Error("a request whose client has left got the definition")
		}
		close(stored.ready)
		for range cap(results) {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		if stored.reads != 1 {
			t.Errorf("the definition was read %d times", stored.reads)
		}
	})
}
