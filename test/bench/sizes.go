package main

import (
	"fmt"
	"time"
)

// sizes say how much each phase does.
type sizes struct {
	Pods      int           // pods created, then listed
	Writes    int           // ConfigMaps created, then updated, with 64 clients; half of it with 16, a twentieth with 1
	Gets      int           // single reads
	Lists     int           // lists of each kind
	Watchers  int           // watchers of the fan-out
	Events    int           // creates that each of them sees
	Idle      time.Duration // observation of a server without load
	Updates   int           // of the 2,000 objects of churn
	Direct    bool          // they go through the store, not the server
	Retention time.Duration // of their versions, where it is not all of them
	Settle    time.Duration // from the last of them to the look at the database
}

var defaultSizes = sizes{Pods: 10_000, Writes: 6_000, Gets: 10_000, Lists: 6, Watchers: 100, Events: 500, Idle: 20 * time.Second, Updates: 20_000, Retention: 10 * time.Second, Settle: time.Minute}

// quickSizes make a run of seconds, enough to see that every phase works.
var quickSizes = sizes{Pods: 300, Writes: 200, Gets: 200, Lists: 1, Watchers: 10, Events: 20, Idle: time.Second, Updates: 500, Retention: time.Second, Settle: 5 * time.Second}

// quick returns the quick sizes, but keeps those whose flags were given.
func (s sizes) quick(given map[string]bool) sizes {
	q := quickSizes
	q.Direct = s.Direct
	for flag, set := range map[string]func(){
		"pods":      func() { q.Pods = s.Pods },
		"writes":    func() { q.Writes = s.Writes },
		"gets":      func() { q.Gets = s.Gets },
		"lists":     func() { q.Lists = s.Lists },
		"watchers":  func() { q.Watchers = s.Watchers },
		"events":    func() { q.Events = s.Events },
		"idle":      func() { q.Idle = s.Idle },
		"updates":   func() { q.Updates = s.Updates },
		"retention": func() { q.Retention = s.Retention },
		"settle":    func() { q.Settle = s.Settle },
	} {
		if given[flag] {
			set()
		}
	}
	return q
}

// validate refuses sizes that a phase cannot run with.
func (s sizes) validate() error {
	for _, n := range []int{s.Pods, s.Writes, s.Gets, s.Lists, s.Watchers, s.Events, s.Updates} {
		if n < 1 || n > 1_000_000 {
			return fmt.Errorf("sizes must be between 1 and 1,000,000, not %d", n)
		}
	}
	if s.Idle <= 0 || s.Idle > time.Hour {
		return fmt.Errorf("--idle must be more than 0 and at most 1h, not %s", s.Idle)
	}
	if s.Retention < time.Second {
		return fmt.Errorf("--retention must be at least 1s, not %s", s.Retention)
	}
	if s.Settle < 0 || s.Settle > time.Hour {
		return fmt.Errorf("--settle must be at least 0 and at most 1h, not %s", s.Settle)
	}
	return nil
}

// selected is how many of the pods carry the label that the selector phase asks for: 200 of 10,000.
func (s sizes) selected() int { return max(1, s.Pods/50) }
