package controllers

import (
	"context"
	"reflect"
	"slices"
	"sync"
)

// closings calls functions when channels are closed. One goroutine waits for all of them.
type closings struct {
	ctx  context.Context // ends the goroutine
	more chan struct{}   // buffered, one: there is another channel
	ran  sync.WaitGroup

	mu       sync.Mutex
	channels []<-chan struct{}
	calls    []func() // by channel
	runs     bool
}

func newClosings(ctx context.Context) *closings {
	return &closings{ctx: ctx, more: make(chan struct{}, 1)}
}

// when calls do once the channel is closed, unless the context ends first.
func (c *closings) when(closed <-chan struct{}, do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.channels, c.calls = append(c.channels, closed), append(c.calls, do)
	if !c.runs {
		c.runs = true
		c.ran.Go(c.run)
	}
	select {
	case c.more <- struct{}{}:
	default:
	}
}

func (c *closings) run() {
	for {
		c.mu.Lock()
		cases := make([]reflect.SelectCase, 0, 2+len(c.channels))
		for _, channel := range append([]<-chan struct{}{c.ctx.Done(), c.more}, c.channels...) {
			cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(channel)})
		}
		c.mu.Unlock()
		switch chosen, _, _ := reflect.Select(cases); chosen {
		case 0:
			return
		case 1:
		default:
			c.take(chosen - 2)()
		}
	}
}

// take removes a channel, and returns what is to be called.
func (c *closings) take(i int) (do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do = c.calls[i]
	c.channels, c.calls = slices.Delete(c.channels, i, i+1), slices.Delete(c.calls, i, i+1)
	return do
}
