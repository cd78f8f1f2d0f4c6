package sqlstore

import (
	"errors"
	"testing"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace/noop"
)

// TestSpansCostNothing checks that requests that are not traced cause no allocations for spans.
func TestSpansCostNothing(t *testing.T) {
	s, b := &Store{}, &statement{}
	group := []*pending{{}, {}}
	allocations := testing.AllocsPerRun(100, func() {
		ctx, operation := StartSpan(t.Context(), "Get sqlstore")
		_, statement := s.statementSpan(ctx, b)
		endSpan(statement, nil)
		operation.End()
		_, commit := s.commitSpan(ctx, group)
		endSpan(commit, errNotTraced)
	})
	if allocations != 0 {
		t.Errorf("%v allocations", allocations)
	}
}

var errNotTraced = errors.New("not traced")

// status is a span that keeps its status.
type status struct {
	noop.Span
	code codes.Code
}

// SetStatus implements trace.Span.
func (s *status) SetStatus(code codes.Code, _ string) { s.code = code }

// TestFailedSpans checks which spans end as failed.
func TestFailedSpans(t *testing.T) {
	for err, want := range map[error]codes.Code{nil: codes.Unset, errNotTraced: codes.Error} {
		span := &status{}
		if endSpan(span, err); span.code != want {
			t.Errorf("after %v, the span is %v", err, span.code)
		}
	}
}
