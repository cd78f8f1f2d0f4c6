//go:build !linux

package sqlite

import (
	"errors"
	"os"
)

// allocate would set aside size bytes for the file.
func allocate(*os.File, int64) error { return errors.ErrUnsupported }
