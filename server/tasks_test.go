package server

import (
	"strings"
	"testing"
	"time"
)

// TestPanicOfTask looks at a task of a hosted cluster that panics.
func TestPanicOfTask(t *testing.T) {
	p, failed := newTasks(), make(chan string, 1)
	p.panicked = func(name string, err error) { failed <- name + ": " + err.Error() }
	p.start("controllers", func() { panic("for a test") })
	if err := p.wait(time.Minute); err != nil {
		t.Fatal(err)
	}
	if got := <-failed; got != "controllers: panic: for a test" {
		t.Errorf("it failed with %q", got)
	}
}

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
