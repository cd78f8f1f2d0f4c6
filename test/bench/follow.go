package main

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"
)

// follow passes what an informer would see of a collection to see, until the context ends: all objects, then their changes. A
// watch that ends is resumed where it was, on whatever server answers. If that is not possible, follow calls restart and begins again
// with all objects. synced is called when see has got all of them.
func (c *client) follow(ctx context.Context, collection, fieldSelector string, see func(seen), restart, synced func()) {
	version := "" // up to which all has been seen
	for ctx.Err() == nil {
		query := url.Values{"watch": {"1"}, "allowWatchBookmarks": {"true"}}
		if fieldSelector != "" {
			query.Set("fieldSelector", fieldSelector)
		}
		if version != "" {
			query.Set("resourceVersion", version)
		} else {
			query.Set("sendInitialEvents", "true")
			query.Set("resourceVersionMatch", "NotOlderThan")
		}
		err := c.watch(ctx, collection+"?"+query.Encode(), func(event []byte) error {
			e := seenIn(event)
			switch e.kind {
			case "ERROR":
				return errExpired
			case "BOOKMARK":
				if bytes.Contains(event, initialEventsEnd) {
					version = e.version()
					synced()
				}
			default:
				see(e)
			}
			if version != "" {
				version = e.version()
			}
			return nil
		})
		if errors.Is(err, errExpired) || isStatus(err, http.StatusGone) {
			version = ""
			restart()
		}
		if wait(ctx, followPause) != nil {
			return
		}
	}
}

// followPause is how long follow waits before it resumes a watch.
const followPause = 100 * time.Millisecond

// errExpired is the end of a watch that can't be resumed.
var errExpired = errors.New("the watch has expired")

// watch passes each event of a watch in protobuf to see, until the watch or the context ends, or see returns an error.
func (c *client) watch(ctx context.Context, path string, see func(event []byte) error) (err error) {
	response, err := c.send(ctx, get(path).as(mediaProtobufWatch))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	events := newEventReader(response.Body, mediaProtobufWatch, eventBuffer)
	for {
		event, err := events.next()
		if err == nil {
			err = see(event)
		}
		if err != nil {
			return err
		}
	}
}

// eventBuffer is the buffer of each of thousands of watches.
const eventBuffer = 4 << 10
