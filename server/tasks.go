package server

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// tasks are the goroutines that run alongside requests, by name.
type tasks struct {
	ended   sync.WaitGroup
	mu      sync.Mutex
	running map[string]int
}

func newTasks() *tasks { return &tasks{running: map[string]int{}} }

// start runs a task in a goroutine.
func (t *tasks) start(name string, run func()) {
	ended := t.track(name)
	go func() {
		defer ended()
		run()
	}()
}

// track records that a task is running until ended is called.
func (t *tasks) track(name string) (ended func()) {
	t.note(name, 1)
	return func() { t.note(name, -1) }
}

func (t *tasks) note(name string, more int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running[name] += more; t.running[name] == 0 {
		delete(t.running, name)
	}
	t.ended.Add(more)
}

// wait returns when all tasks have ended. After the timeout it returns an error that names those still running.
func (t *tasks) wait(timeout time.Duration) error {
	err := stopWithin(timeout, "", func() error { t.ended.Wait(); return nil })
	if err == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return fmt.Errorf("%w%s", err, strings.Join(slices.Sorted(maps.Keys(t.running)), ", "))
}

// stopWithin calls stop and returns its error, or an error with the name if stop takes longer than timeout, the
// --shutdown-grace-period. The shutdown then continues without it.
func stopWithin(timeout time.Duration, name string, stop func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	select {
	case err := <-ended:
		return err
	case <-time.After(timeout):
		return fmt.Errorf("did not stop within --shutdown-grace-period: %s", name)
	}
}
