package server

import (
	"strings"
	"testing"
	"time"
)

// TestPartThatHangs ends parts of which some never end: the others are waited for, and an error names those.
func TestPartThatHangs(t *testing.T) {
	p := newTasks()
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	p.start("bootstrap", func() {})
	if err := p.wait(time.Minute); err != nil {
		t.Fatalf("parts that end: %v", err)
	}
	p.start("controllers", func() {
		defer p.track("garbage-collector controller")()
		<-hang
	})
	p.start("certificates", func() {})
	p.start("audit", func() { <-hang })
	// Long enough for the part that ends by itself.
	err := p.wait(time.Second)
	if err == nil || !strings.HasSuffix(err.Error(), ": audit, controllers, garbage-collector controller") {
		t.Errorf("got %v", err)
	}
}
