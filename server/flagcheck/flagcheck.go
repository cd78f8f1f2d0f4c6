// Package flagcheck collects what is wrong with the values of flags.
package flagcheck

import (
	"fmt"
	"os"
)

// Problems are errors that name flags.
type Problems []error

// Unless adds an error if ok is false.
func (p *Problems) Unless(ok bool, format string, args ...any) {
	if !ok {
		*p = append(*p, fmt.Errorf(format, args...))
	}
}

// Readable adds an error if a flag names a file that can't be read.
func (p *Problems) Readable(flag, path string) {
	if path != "" {
		_, err := os.ReadFile(path)
		p.Unless(err == nil, "--%s must name a readable file: %w", flag, err)
	}
}
