// Package openapi serves /openapi/v2 and /openapi/v3.
//
// The documents of the built-in APIs are made at build time (see internal/gen) and embedded compressed: building them in
// the process would cost every start 20 MB and a third of a second. They are sent as they lie in the binary; only a client
// that doesn't take gzip makes the server expand them. What CustomResourceDefinitions add is built when it is asked for,
// and kept for a minute.
//
// There is no controller: every request looks at the definitions as they are, so a document can't be older than the
// lister it is made from. An ETag is made of the names and generations of the definitions a document describes, and so
// costs no building.
package openapi

//go:generate go run -tags grpcnotrace ./internal/gen -out builtin
