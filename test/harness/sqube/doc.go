// Package sqube runs the built binary like a user, as a process with a data directory, and kubectl against it. It uses only
// sqube's command line and its API.
package sqube
