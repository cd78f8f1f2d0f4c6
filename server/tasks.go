package server

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// parts are what runs beside requests, by name.
type tasks struct {
	ended   sync.WaitGroup
	mu      sync.Mutex
	running map[string]int
}

func newTasks() *tasks { return &tasks{running: map[string]int{}} }

// start runs a part in a goroutine of its own.
func (p *tasks) start(name string, run func()) {
	ended := p.track(name)
	go func() {
		defer ended()
		run()
	}()
}

// track notes that a part runs, until the function that it returns is called.
func (p *tasks) track(name string) (ended func()) {
	p.note(name, 1)
	return func() { p.note(name, -1) }
}

func (p *tasks) note(name string, more int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running[name] += more; p.running[name] == 0 {
		delete(p.running, name)
	}
	p.ended.Add(more)
}

// wait returns when all parts have ended, or an error that names those that have not when timeout is over.
func (p *tasks) wait(timeout time.Duration) error {
	err := StopWithin(timeout, "", func() error { p.ended.Wait(); return nil })
	if err == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Errorf("%w%s", err, strings.Join(slices.Sorted(maps.Keys(p.running)), ", "))
}

// StopWithin ends a part of the process and returns its error, or one that names the part when that takes longer than timeout, which
// is --shutdown-grace-period. The process then goes on to end without it.
func StopWithin(timeout time.Duration, name string, end func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- end() }()
	select {
	case err := <-ended:
		return err
	case <-time.After(timeout):
		return fmt.Errorf("did not stop within --shutdown-grace-period: %s", name)
	}
}
