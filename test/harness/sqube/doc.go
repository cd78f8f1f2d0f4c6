// Package sqube runs the built binary as a user does, as a process with a data directory, and kubectl against it. It
// knows sqube only by its command line and its API.
package sqube
