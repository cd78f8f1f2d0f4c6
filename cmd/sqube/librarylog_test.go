package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestLibraryLog writes entries as klog does, and compares the records.
func TestLibraryLog(t *testing.T) {
	for name, test := range map[string]struct{ entry, want string }{
		"unstructured": {`Resetting "a" to b=c`, `level=ERROR msg="Resetting \"a\" to b=c"`},
		"structured": {`"Unhandled Error" err="loading \"v1\" failed" logger="UnhandledError"`,
			`level=ERROR msg="Unhandled Error" error="loading \"v1\" failed" logger=UnhandledError`},
		"other values": {`"Slow" count=3 names=["a b","c"] level="x"`, `level=ERROR msg=Slow count=3 names="[a b c]" level_=x`},
		"lines":        {"\"Failed\" err=<\n\tone\n\ttwo\n > after=true", `level=ERROR msg=Failed error="one\ntwo" after=true`},
		"torn":         {`"Failed" err="one`, `level=ERROR msg="\"Failed\" err=\"one"`},
		"not ours":     {`"Failed" err=one two`, `level=ERROR msg="\"Failed\" err=one two"`},
		"another server was first": {`"Unhandled Error" err="kube-system/a failed with : configmaps \"a\" already exists" logger="UnhandledError"`,
			`level=DEBUG msg="Unhandled Error" error="kube-system/a failed with : configmaps \"a\" already exists" logger=UnhandledError`},
		"a client has gone": {`"Timeout or abort while handling" logger="UnhandledError" method="GET" URI="/a"`,
			`level=DEBUG msg="Timeout or abort while handling" logger=UnhandledError method=GET URI=/a`},
		"an informer is behind": {`"Unhandled Error" err="syncing default/a: read version: 7 is not as new as written version: 9 for group resource pods"`,
			`level=DEBUG msg="Unhandled Error" error="syncing default/a: read version: 7 is not as new as written version: 9 for group resource pods"`},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			w := &levelWriter{slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})), slog.LevelError, &atomic.Bool{}, newRepeats()}
			for range 2 {
				if n, err := w.Write([]byte(test.entry + "\n")); n != len(test.entry)+1 || err != nil {
					t.Errorf("%d, %v", n, err)
				}
			}
			want := test.want + "\n" + strings.Replace(test.want, "level=ERROR", "level=DEBUG", 1) + "\n"
			if got := withoutTimes(out.String()); got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}

// withoutTimes removes the times from a log.
func withoutTimes(log string) string {
	var b strings.Builder
	for line := range strings.Lines(log) {
		_, rest, _ := strings.Cut(line, " ")
		b.WriteString(rest)
	}
	return b.String()
}

// TestRepeats checks when an entry counts as a repetition, and that the memory for it is bounded.
func TestRepeats(t *testing.T) {
	r, start := newRepeats(), time.Now()
	for _, step := range []struct {
		text  string
		after time.Duration
		want  bool
	}{
		{"a", 0, false}, {"b", 0, false}, {"a", 15 * time.Second, true}, {"a", 15*time.Second + repeatInterval - 1, true},
		{"a", 15*time.Second + 2*repeatInterval, false}, {"b", 15*time.Second + 2*repeatInterval, false},
	} {
		if got := r.again(step.text, start.Add(step.after)); got != step.want {
			t.Errorf("%s after %s: %t", step.text, step.after, got)
		}
	}
	for i := range 3 * maxRepeats {
		r.again(fmt.Sprint(i), start)
	}
	if len(r.last) > maxRepeats {
		t.Errorf("%d entries are remembered", len(r.last))
	}
}
