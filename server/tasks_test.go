package server

import (
	"strings"
	"testing"
	"time"
)

// TestPartThatHangs checks that wait returns an error that names the tasks that have not ended, and only those.
func TestPartThatHangs(t *testing.T) {
	p := newTasks()
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	p.start("bootstrap", func() {})
	if err := p.wait(time.Minute); err != nil {
		t.Fatalf("tasks that end: %v", err)
	}
	p.start("controllers", func() {
		defer p.track("garbage-collector controller")()
		<-hang
	})
	p.start("certificates", func() {})
	p.start("audit", func() { <-hang })
	// Long enough for the task that ends by itself.
	err := p.wait(time.Second)
	if err == nil || !strings.HasSuffix(err.Error(), ": audit, controllers, garbage-collector controller") {
		t.Errorf("got %v", err)
	}
}
