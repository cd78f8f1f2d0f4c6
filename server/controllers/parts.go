package controllers

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/kubernetes/pkg/controller/garbagecollector"
)

// A part of a call of Run are the controllers that are built at the same time: at once, or when they first have something to do.

// inGroups returns the controllers that wait for the same, in their order. The first group, which may be empty, waits for nothing.
func inGroups(controllers []controller) [][]controller {
	type condition struct {
		awaits  string
		clients bool
	}
	groups, at := [][]controller{nil}, map[condition]int{{awaits: fmt.Sprint(of())}: 0}
	for _, c := range controllers {
		when := condition{fmt.Sprint(c.awaits), c.awaitsClients}
		i, ok := at[when]
		if !ok {
			i, at[when], groups = len(groups), len(groups), append(groups, nil)
		}
		groups[i] = append(groups[i], c)
	}
	return groups
}

// awaitFirst waits until the first part is built and the controller has something to do. It returns false if ctx ends first.
func awaitFirst(ctx context.Context, first <-chan struct{}, c controller, config Config) bool {
	awake := make(chan struct{})
	wake := sync.OnceFunc(func() { close(awake) }) // Sleep may call it even if it returns false
	var needed <-chan struct{} = awake
	if c.awaitsClients && config.Written != nil {
		needed = config.Written
	} else if c.awaitsClients {
		wake()
	}
	for _, resource := range c.awaits {
		if cancel, asleep := config.Sleep(ctx, resource, wake); asleep {
			defer cancel()
		} else {
			wake()
		}
	}
	for _, happened := range []<-chan struct{}{first, needed} {
		select {
		case <-happened:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// part returns the state of a part. Its event handlers are called once its controllers have been built.
func (s *runState) part() *runState {
	part := *s
	part.started = make(chan struct{})
	part.shared = s.shared.part(part.started)
	s.parts = append(s.parts, part.shared)
	return &part
}

// run builds the controllers, calls built, and runs them until ctx ends. It returns the error of one that can't be built.
func (s *runState) run(ctx context.Context, controllers []controller, built func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var failed error
	loops := map[string]func(context.Context){}
	for _, controller := range controllers {
		loop, err := controller.prepare(ctx, s)
		if err != nil {
			if ctx.Err() == nil {
				failed = fmt.Errorf("%s: %w", controller.title(), err)
			}
			cancel() // those already built still run, since only that ends their queues
			break
		}
		if loop != nil {
			loops[controller.title()] = loop
		}
	}
	s.start()
	built()
	var running sync.WaitGroup
	if len(loops) == 0 && failed == nil { // the resources that they control are not served
		<-ctx.Done()
	}
	for name, loop := range loops {
		ended := s.config.Track(name)
		running.Go(func() {
			defer ended()
			loop(ctx)
		})
	}
	running.Wait()
	return failed
}

// collector is the garbage collector of a call of Run.
type collector struct {
	made    chan struct{} // closed when it has been built, or will not be
	builder *garbagecollector.GraphBuilder
}

// graph returns the collector's graph once it is built; nil if it does not run.
func (c *collector) graph(ctx context.Context) *garbagecollector.GraphBuilder {
	select {
	case <-c.made:
		return c.builder
	case <-ctx.Done():
		return nil
	}
}
