// Package harness starts what the tests need and ends it again: throwaway Postgres servers and, for each engine, a
// fresh empty database. Everything listens on 127.0.0.1 and lives in temporary directories.
//
// It depends on nothing of sqube, so that the tests of every package may import it. Its subpackage sqube runs the
// built binary and kubectl.
package harness
