package main

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// callTimes are the durations of the nodes' requests, by verb and resource. Watches are left out.
type callTimes struct {
	mu    sync.Mutex
	times map[string][]time.Duration
}

func callName(verb, resource, subresource string) string {
	if subresource != "" {
		resource += "/" + subresource
	}
	return strings.ToUpper(verb) + " " + resource
}

func (c *callTimes) add(name string, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.times == nil {
		c.times = map[string][]time.Duration{}
	}
	c.times[name] = append(c.times[name], took)
}

// worst returns the number of calls, and the name and the p99 of the slowest kind.
func (c *callTimes) worst() (calls int, name string, p99 time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for of, times := range c.times {
		calls += len(times)
		slices.Sort(times)
		if took := quantile(times, 99); took > p99 {
			name, p99 = of, took
		}
	}
	return calls, name, p99
}
