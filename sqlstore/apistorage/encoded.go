package apistorage

import (
	"strconv"
	"sync"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/runtime"
)

// encodedCache keeps what responses were encoded to, so that a version of an
// object is decoded and encoded once for all who read it in the same form.
//
// Entries never go stale: a revision names one version of one object for ever.
// The cache holds at most about its budget, and drops what was not used for
// longest. It does so by generations: what is used moves into the young one;
// when that holds half of the budget it becomes the old one, and what is still
// in the one before goes.
type encodedCache struct {
	budget int

	mu         sync.Mutex
	young, old map[encodedKey][]byte
	youngBytes int

	making singleflight.Group
}

// encodedKey names a version of an object and the encoder, which includes the
// API version that it encodes to.
type encodedKey struct {
	revision int64
	encoder  runtime.Identifier
}

// entryOverhead is roughly what an entry takes besides its bytes.
const entryOverhead = 100

func newEncodedCache(budget int) *encodedCache {
	return &encodedCache{budget: budget, young: map[encodedKey][]byte{}}
}

// get returns the bytes kept under key, which must not be changed, or nil.
func (c *encodedCache) get(key encodedKey) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if data, ok := c.young[key]; ok {
		return data
	}
	data, ok := c.old[key]
	if ok {
		c.putLocked(key, data)
	}
	return data
}

// obtain returns the bytes kept under key, or those that make returns, which it
// then keeps. Lists that run at once wait for what one of them makes.
func (c *encodedCache) obtain(key encodedKey, make func() ([]byte, error)) ([]byte, error) {
	if data := c.get(key); data != nil {
		return data, nil
	}
	data, err, shared := c.making.Do(strconv.FormatInt(key.revision, 10)+" "+string(key.encoder), func() (any, error) {
		data, err := make()
		if err == nil {
			c.put(key, data)
		}
		return data, err
	})
	if err != nil && shared {
		return make() // the other's context may have ended
	}
	if err != nil {
		return nil, err
	}
	return data.([]byte), nil
}

// put keeps data under key. The caller must not change it any more.
func (c *encodedCache) put(key encodedKey, data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.putLocked(key, data)
}

func (c *encodedCache) putLocked(key encodedKey, data []byte) {
	size := len(data) + entryOverhead
	if size > c.budget/8 {
		return // it would push out too much else
	}
	if c.youngBytes+size > c.budget/2 {
		c.old, c.young, c.youngBytes = c.young, map[encodedKey][]byte{}, 0
	}
	if _, ok := c.young[key]; !ok {
		c.youngBytes += size
	}
	c.young[key] = data
}
