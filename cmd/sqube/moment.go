package main

import (
	"fmt"
	"time"

	"github.com/sqube/sqube/sqlstore/inspect"
)

// parseMoment parses the time that a flag gives, which must not be in the future: nobody knows that state yet. wanted is what the flag
// takes.
func parseMoment(flag, wanted, text string) (time.Time, error) {
	moment, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return moment, fmt.Errorf("%s must be %s like 2026-11-21T10:00:00Z, not %q", flag, wanted, text)
	}
	if now := time.Now(); moment.After(now) {
		return moment, fmt.Errorf("%s %s is in the future: this machine's clock says %s", flag, text, inspect.Stamp(now))
	}
	return moment, nil
}

// ago reads a time, or how long ago it was.
func ago(flag, text string, now time.Time) (time.Time, error) {
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	return parseMoment(flag, "a duration like 2h, or a time", text)
}
