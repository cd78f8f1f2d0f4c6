// Package openapi serves /openapi/v2 and /openapi/v3.
//
// The documents of the built-in APIs are made at build time (see internal/gen) and embedded compressed: building them in the
// process would cost every start 20 MB and a third of a second. They are sent as embedded; the server expands them only for
// clients that do not accept gzip. The parts for CustomResourceDefinitions are built on request and kept for a minute.
//
// There is no controller: every request uses the current definitions, so a document is never older than the informer's objects. An
// ETag is derived from the names and generations of the definitions that a document describes, without building the document.
package openapi

//go:generate go run -tags grpcnotrace ./internal/gen -out builtin
