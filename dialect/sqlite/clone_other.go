//go:build !linux

package sqlite

import "os"

// clone makes the empty file to what from is.
func clone(to, from *os.File) error { return copyBytes(to, from) }
