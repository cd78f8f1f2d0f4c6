package sqlstore

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// StartSpan starts an OpenTelemetry span as a child of the one in ctx, if that is recorded. Otherwise, and so always without
// --tracing-config-file, it returns ctx and a span that does nothing.
func StartSpan(ctx context.Context, name string) (context.Context, trace.Span) {
	return startSpan(ctx, name, trace.SpanKindInternal)
}

func startSpan(ctx context.Context, name string, kind trace.SpanKind) (context.Context, trace.Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, noop.Span{}
	}
	return parent.TracerProvider().Tracer("github.com/sqube/sqube/sqlstore").Start(ctx, name, trace.WithSpanKind(kind))
}

func endSpan(span trace.Span, err error) {
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// statementSpan starts the span of a read. It does not contain the parameters.
func (s *Store) statementSpan(ctx context.Context, b *statement) (context.Context, trace.Span) {
	ctx, span := startSpan(ctx, "SELECT log", trace.SpanKindClient)
	if span.IsRecording() {
		span.SetAttributes(s.system(), attribute.String("db.query.text", b.text.String()))
	}
	return ctx, span
}

// commitSpan starts the span of a group commit. Its parent is the span of the first write that has one; the others are links.
func (s *Store) commitSpan(ctx context.Context, group []*pending) (context.Context, trace.Span) {
	var links []trace.Link
	for _, p := range group {
		switch {
		case p.span == nil:
		case !trace.SpanFromContext(ctx).IsRecording():
			ctx = trace.ContextWithSpan(ctx, p.span)
		default:
			links = append(links, trace.Link{SpanContext: p.span.SpanContext()})
		}
	}
	ctx, span := startSpan(ctx, "COMMIT log", trace.SpanKindClient)
	if span.IsRecording() {
		span.SetAttributes(s.system(), attribute.Int("db.operation.batch.size", len(group)))
		for _, link := range links {
			span.AddLink(link)
		}
	}
	return ctx, span
}

// system returns OpenTelemetry's name of the database.
func (s *Store) system() attribute.KeyValue {
	name := s.engine.Name()
	if name == "postgres" {
		name = "postgresql"
	}
	return attribute.String("db.system.name", name)
}
