package main

import (
	"context"
	"encoding/json"
	"hash/maphash"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// levelWriter logs each entry of klog with one level. An entry is debug output once the server is stopping, if it is harmless, and
// if it repeats one that was just logged.
type levelWriter struct {
	logger   *slog.Logger
	level    slog.Level
	stopping *atomic.Bool
	said     *repeats
}

// harmless are parts of the libraries' warnings and errors that need no action from an operator: requests that clients gave up, the
// server's address added to its own Service or found there after a crash, objects that a new cluster does not have yet, objects that
// another server created or changed first, or whose last write a controller's informer does not have yet, whereupon the library tries
// again, metrics of a controller that starts a second time, mistakes that clients are informed of.
var harmless = []string{
	"context canceled",
	"http2: stream closed",
	"Post-timeout activity",
	"post-timeout activity",
	"http: Handler timeout",
	"Timeout or abort while handling",
	`"Failed to encode watch event" err="i/o timeout"`,
	`Resetting endpoints for master service "kubernetes"`,
	"Found stale data, removed previous endpoints on kubernetes service",
	"Getting lastest possible tracked_since time",
	"Couldn't parse request",
	`\" already exists"`,
	"the object has been modified; please apply your changes to the latest version and try again",
	"is not as new as written version: ",
	"duplicate metrics collector registration attempted",
	"The manifest file is empty, ignoring.", // --allow-metric-labels-manifest is not given
}

// Write logs an entry.
func (w *levelWriter) Write(entry []byte) (int, error) {
	if !w.logger.Enabled(context.Background(), w.level) {
		return len(entry), nil
	}
	text, level := strings.TrimSpace(string(entry)), w.level
	contains := func(part string) bool { return strings.Contains(text, part) }
	if w.stopping.Load() || slices.ContainsFunc(harmless, contains) || level > slog.LevelInfo && w.said.again(text, time.Now()) {
		level = slog.LevelDebug
	}
	message, attributes := parseEntry(text)
	w.logger.Log(context.Background(), level, message, attributes...)
	return len(entry), nil
}

// parseEntry splits a structured entry of klog, "message" key=value …, so that slog does not quote it once more. Any other entry is a
// message as a whole.
func parseEntry(text string) (message string, attributes []any) {
	message, rest, ok := cutQuoted(text)
	for ok && rest != "" {
		var key string
		if key, rest, ok = strings.Cut(rest, "="); !ok {
			break
		}
		var value any
		switch {
		case strings.HasPrefix(rest, `"`):
			value, rest, ok = cutQuoted(rest)
		case strings.HasPrefix(rest, "<\n"): // lines, each after a tab
			var lines string
			lines, rest, ok = strings.Cut(rest[1:], "\n >")
			value = strings.TrimPrefix(strings.ReplaceAll(lines, "\n\t", "\n"), "\n")
		default:
			decoder := json.NewDecoder(strings.NewReader(rest))
			decoder.UseNumber()
			ok = decoder.Decode(&value) == nil
			rest = rest[decoder.InputOffset():]
		}
		attributes = append(attributes, attributeName(strings.TrimPrefix(key, " ")), value)
	}
	if !ok {
		return text, nil
	}
	return message, attributes
}

// cutQuoted cuts a quoted string off text, and unquotes it.
func cutQuoted(text string) (value, rest string, ok bool) {
	quoted, err := strconv.QuotedPrefix(text)
	if err == nil {
		value, err = strconv.Unquote(quoted)
	}
	return value, strings.TrimPrefix(text, quoted), err == nil
}

// attributeName returns sqube's name for a key of klog.
func attributeName(key string) string {
	switch key {
	case "err":
		return "error"
	case slog.TimeKey, slog.LevelKey, slog.MessageKey:
		return key + "_" // each record has its own
	}
	return key
}

// repeats knows which entries were logged before, so that one that keeps coming is logged once: some controllers try again and again
// what can't succeed until somebody changes an object.
type repeats struct {
	seed maphash.Seed
	mu   sync.Mutex
	last map[uint64]time.Time // when an entry came last, by hash
}

const (
	// repeatInterval is longer than the longest interval between attempts of upstream's queues, which is 1000 seconds.
	repeatInterval = 20 * time.Minute
	maxRepeats     = 1000
)

func newRepeats() *repeats {
	return &repeats{seed: maphash.MakeSeed(), last: map[uint64]time.Time{}}
}

// again reports whether an entry came less than repeatInterval ago.
func (r *repeats) again(text string, now time.Time) bool {
	hash := maphash.String(r.seed, text)
	r.mu.Lock()
	defer r.mu.Unlock()
	before, found := r.last[hash]
	if !found && len(r.last) == maxRepeats {
		maps.DeleteFunc(r.last, func(_ uint64, last time.Time) bool { return now.Sub(last) >= repeatInterval })
		if len(r.last) == maxRepeats {
			clear(r.last)
		}
	}
	r.last[hash] = now
	return found && now.Sub(before) < repeatInterval
}
