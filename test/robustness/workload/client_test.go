package workload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"testing"

	"github.com/sqube/sqube/test/robustness/history"
)

// TestOutcome checks that only unambiguous responses count as an outcome.
func TestOutcome(t *testing.T) {
	status := func(code int, reason string) error {
		return newRefusal(code, []byte(fmt.Sprintf(`{"kind":"Status","code":%d,"reason":%q}`, code, reason)))
	}
	network := func(operation string) error {
		return &url.Error{Op: "Put", URL: "https://127.0.0.1", Err: &net.OpError{Op: operation, Err: errors.New("refused")}}
	}
	for _, c := range []struct {
		err       error
		want      history.Outcome
		deserved  bool
		forgotten bool
	}{
		{nil, history.Done, true, false},
		{status(404, "NotFound"), history.Absent, true, false},
		{newRefusal(404, []byte("404 page not found")), history.Unknown, true, false},
		{status(409, "AlreadyExists"), history.Exists, true, false},
		{status(409, "Conflict"), history.Conflict, true, false},
		{status(410, "Expired"), history.Unknown, true, true},
		{status(503, "ServiceUnavailable"), history.Unknown, true, false},
		{status(504, "Timeout"), history.Unknown, true, false},
		{status(429, "TooManyRequests"), history.Unknown, true, false},
		{status(500, "InternalError"), history.Unknown, false, false},
		{status(401, "Unauthorized"), history.Unknown, false, false},
		{status(422, "Invalid"), history.Unknown, false, false},
		{network("dial"), history.Unsent, true, false},
		{network("read"), history.Unknown, true, false},
		{io.ErrUnexpectedEOF, history.Unknown, true, false},
		{context.DeadlineExceeded, history.Unknown, true, false},
	} {
		var refused *refusal
		deserved := !errors.As(c.err, &refused) || !refused.undeserved()
		if got := outcome(c.err); got != c.want || deserved != c.deserved || isGone(c.err) != c.forgotten {
			t.Errorf("%v: %s, deserved %t, gone %t", c.err, got, deserved, isGone(c.err))
		}
	}
}
