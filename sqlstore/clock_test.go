package sqlstore

import (
	"testing"
	"time"
)

// TestClockCatchesUp checks that the log's time goes on while this machine's clock is behind it, after an hour at half the speed.
func TestClockCatchesUp(t *testing.T) {
	now := time.Now()
	for _, test := range []struct{ behind, since, passed, want time.Duration }{
		{10 * time.Minute, time.Minute, 40 * time.Second, 40 * time.Second},
		{10 * time.Minute, 2 * time.Hour, 40 * time.Second, 20 * time.Second},
		{500 * time.Millisecond, 0, 100 * time.Millisecond, 50 * time.Millisecond},
		{10 * time.Second, 2 * time.Hour, 40 * time.Second, 30 * time.Second}, // this machine's clock has caught up
	} {
		log := now.Add(test.behind - test.passed)
		c := clock{log: log, at: now.Add(-test.passed), off: now, since: now.Add(-test.since)}
		passed := time.UnixMilli(c.commitTime(now)).Sub(log)
		if test.want-passed > time.Millisecond || passed > test.want+time.Since(now) {
			t.Errorf("%+v: the log's time has gone on by %s", test, passed)
		}
	}
}
