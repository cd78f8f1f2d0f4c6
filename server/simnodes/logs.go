package simnodes

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"
)

// log is the log of a run of a container.
type log struct {
	mu      sync.Mutex
	lines   []line
	ended   bool
	changed chan struct{} // closed at the next change; nil unless somebody waits
}

type line struct {
	at   time.Time
	text string
}

func newLog() *log { return &log{} }

func (l *log) write(at time.Time, text string) {
	l.change(func() { l.lines = append(l.lines, line{at, text}) })
}

// end says that nothing follows. A nil log, of a container that has not started, has no readers.
func (l *log) end() {
	if l != nil {
		l.change(func() { l.ended = true })
	}
}

func (l *log) change(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do()
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// read returns the lines from index on. If there is nothing more yet, changed is closed when there is.
func (l *log) read(from int) (lines []line, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended && l.changed == nil {
		l.changed = make(chan struct{})
	}
	return l.lines[min(from, len(l.lines)):], l.changed
}

// logQuery is the part of PodLogOptions that an API server forwards.
type logQuery struct {
	follow, previous, timestamps bool
	since                        time.Time
	tail, limit                  int64 // negative: all
	none                         bool  // only lines of a stream that the container does not write to
}

func parseLogQuery(values url.Values, now time.Time) (logQuery, error) {
	q := logQuery{tail: -1, limit: -1}
	q.follow, q.previous, q.timestamps = values.Get("follow") == "true", values.Get("previous") == "true", values.Get("timestamps") == "true"
	q.none = values.Get("stream") == "Stderr"
	number := func(name string, to *int64) (err error) {
		if text := values.Get(name); text != "" {
			if *to, err = strconv.ParseInt(text, 10, 64); err != nil {
				err = fmt.Errorf("%s: %w", name, err)
			}
		}
		return err
	}
	seconds := int64(-1)
	for name, to := range map[string]*int64{"tailLines": &q.tail, "limitBytes": &q.limit, "sinceSeconds": &seconds} {
		if err := number(name, to); err != nil {
			return q, err
		}
	}
	if seconds >= 0 {
		q.since = now.Add(-time.Duration(seconds) * time.Second)
	}
	if text := values.Get("sinceTime"); text != "" {
		var err error
		if q.since, err = time.Parse(time.RFC3339, text); err != nil {
			return q, fmt.Errorf("sinceTime: %w", err)
		}
	}
	return q, nil
}

// copyLog writes what a query asks for, until the log or ctx ends if it follows.
func copyLog(ctx context.Context, w http.ResponseWriter, l *log, q logQuery) {
	lines, changed := l.read(0)
	from := len(lines)
	for len(lines) > 0 && lines[0].at.Before(q.since) {
		lines = lines[1:]
	}
	if q.tail >= 0 {
		lines = lines[max(0, len(lines)-int(q.tail)):]
	}
	for {
		var text bytes.Buffer
		for _, line := range lines {
			if q.none {
				continue
			}
			if q.timestamps {
				text.WriteString(line.at.UTC().Format("2006-01-02T15:04:05.000000000Z07:00 "))
			}
			text.WriteString(line.text)
			text.WriteByte('\n')
		}
		if q.limit >= 0 {
			text.Truncate(min(text.Len(), int(q.limit)))
			q.limit -= int64(text.Len())
		}
		if _, err := io.Copy(w, &text); err != nil || !q.follow || changed == nil || q.limit == 0 {
			return
		}
		if http.NewResponseController(w).Flush() != nil {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
		lines, changed = l.read(from)
		from += len(lines)
	}
}
