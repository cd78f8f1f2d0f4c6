package sqlstore

import (
	"errors"
	"testing"

	"go.opentelemetry.io/otel/trace"
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

// BenchmarkSpanOff measures the cost of spans that are not recorded.
func BenchmarkSpanOff(b *testing.B) {
	ctx := trace.ContextWithSpan(b.Context(), trace.SpanFromContext(b.Context()))
	for b.Loop() {
		_, span := StartSpan(ctx, "Get sqlstore")
		endSpan(span, nil)
	}
}
