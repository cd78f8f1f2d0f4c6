// Package harness starts and stops what the tests need: throwaway Postgres servers and, for each engine, a new empty database.
// Everything listens on 127.0.0.1 and is in temporary directories.
//
// It does not depend on sqube, so that the tests of every package may import it. Its subpackage sqube runs the built binary and
// kubectl.
package harness
