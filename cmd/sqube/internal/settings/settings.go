// Package settings sets flags that are not on the command line from the environment and from a configuration file.
package settings

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/pflag"
)

// Sources are where settings come from besides the command line. The environment overrides the file.
type Sources struct {
	// Known are all flags that can be set. Anything else in the file is an error.
	Known *pflag.FlagSet
	// Environ has the format of os.Environ; nil for none.
	Environ []string
	// File is the path of a YAML mapping of flag names to values; empty for none.
	File string
	// Secret reports whether a value holds a password. A file with one must not be readable by everyone.
	Secret func(flag *pflag.Flag, value string) bool
}

// setting is the value of one flag in one source.
type setting struct {
	flag   *pflag.Flag
	values []string // for --flag=VALUE, one after another
	origin string   // a variable, or FILE:LINE
}

// Apply sets the flags of fs with the given names, or all if there are none, unless the command line has set them. It ignores
// settings of other known flags. Each line of the error names the variable, or the file and the line.
func (s Sources) Apply(fs *pflag.FlagSet, names ...string) error {
	variables, err := s.fromEnvironment()
	settings, fileErr := s.fromFile()
	if err := errors.Join(err, fileErr); err != nil {
		return err
	}
	var errs []error
	for _, setting := range slices.Concat(variables, settings) {
		flag := fs.Lookup(setting.flag.Name)
		if flag == nil || flag.Changed || len(names) > 0 && !slices.Contains(names, flag.Name) {
			continue
		}
		for _, value := range setting.values {
			if err := fs.Set(flag.Name, value); err != nil {
				var invalid *pflag.InvalidValueError
				if errors.As(err, &invalid) {
					err = fmt.Errorf("%q: %w", value, invalid.Unwrap())
				}
				errs = append(errs, fmt.Errorf("%s: %s %w", setting.origin, flag.Name, err))
			}
		}
		if flag.Annotations == nil {
			flag.Annotations = map[string][]string{}
		}
		flag.Annotations[originAnnotation] = []string{setting.origin}
	}
	return errors.Join(errs...)
}

const originAnnotation = "sqube-setting-origin"

// Origin returns the variable, or the FILE:LINE, that set the flag; empty if the command line did, or nothing.
func Origin(flag *pflag.Flag) string {
	if origin := flag.Annotations[originAnnotation]; len(origin) > 0 {
		return origin[0]
	}
	return ""
}

// notSettings are flags for the command line only.
var notSettings = []string{"config", "envtest", "help", "version"}

// lookup returns the flag of that name if it can be set here, or nil.
func (s Sources) lookup(name string) *pflag.Flag {
	flag := s.Known.Lookup(name)
	if flag == nil || slices.Contains(notSettings, flag.Name) {
		return nil
	}
	return flag
}

// nearest returns the flag whose name is at most two characters away from name, and fewer for short names, or "".
func (s Sources) nearest(name string) string {
	best, found := min(2, len(name)/3)+1, ""
	s.Known.VisitAll(func(flag *pflag.Flag) {
		if s.lookup(flag.Name) == nil {
			return
		}
		if d := distance(name, flag.Name); d < best {
			best, found = d, flag.Name
		}
	})
	return found
}

// distance is the Levenshtein distance: the number of bytes to insert, delete or replace.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
