package apistorage

import (
	"io"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// TestSharedEncodingPanics checks that no watcher skips an event because encoding it for another one panicked.
func TestSharedEncodingPanics(t *testing.T) {
	d := &derived{object: &metav1.Status{}}
	func() {
		defer func() { _ = recover() }()
		_, _ = d.encoded("id", watch.Added, 0, func(runtime.Object, io.Writer) error { panic("of a converter") })
	}()
	data, err := d.encoded("id", watch.Added, 0, func(_ runtime.Object, w io.Writer) error {
		_, err := io.WriteString(w, "event")
		return err
	})
	if err == nil && string(data) != "event" {
		t.Errorf("the event of the second watcher is %q, want an error or the event", data)
	}
}
