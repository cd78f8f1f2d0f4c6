package openapi

import (
	"errors"
	"sync"
	"time"
)

// keep is how long a rendered document stays in memory after its last use: long enough for the clients of one deployment, short
// enough that an idle server keeps none.
const keep = time.Minute

// cache holds rendered documents, each for some time after its last use.
type cache struct {
	keep time.Duration

	lock    sync.Mutex
	entries map[string]*entry
}

// errPanicked is the result of a build that did not return.
var errPanicked = errors.New("rendering the OpenAPI document panicked; the log has the stack")

type entry struct {
	once   sync.Once
	value  any
	err    error
	expiry *time.Timer
}

func newCache(keep time.Duration) *cache {
	return &cache{keep: keep, entries: map[string]*entry{}}
}

// get returns the result of build for the key. Concurrent callers wait for the same build; errors are not cached.
func get[T any](c *cache, key string, build func() (T, error)) (T, error) {
	c.lock.Lock()
	e, ok := c.entries[key]
	if !ok {
		e = &entry{}
		e.expiry = time.AfterFunc(c.keep, func() { c.drop(key, e) })
		c.entries[key] = e
	}
	e.expiry.Reset(c.keep)
	c.lock.Unlock()

	e.once.Do(func() {
		e.err = errPanicked // later callers get this if build panics
		if e.value, e.err = build(); e.err != nil {
			c.drop(key, e)
		}
	})
	value, _ := e.value.(T)
	return value, e.err
}

func (c *cache) drop(key string, e *entry) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.entries[key] == e {
		delete(c.entries, key)
	}
	e.expiry.Stop()
}
