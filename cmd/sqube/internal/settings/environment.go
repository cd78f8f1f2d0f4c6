package settings

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

const prefix = "SQUBE_"

// Variable returns the environment variable that sets the flag: SQUBE_DATA_DIR sets --data-dir.
func Variable(flag string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// fromEnvironment returns the settings in environment variables. An empty variable counts as unset. Other variables are ignored, such
// as those that Kubernetes sets for a Service named sqube, unless they look like a misspelled setting.
func (s Sources) fromEnvironment() (settings []setting, err error) {
	var errs []error
	for _, entry := range s.Environ {
		variable, value, _ := strings.Cut(entry, "=")
		rest, ours := strings.CutPrefix(variable, prefix)
		if !ours || value == "" {
			continue
		}
		name := strings.ToLower(strings.ReplaceAll(rest, "_", "-"))
		flag := s.lookup(name)
		switch {
		case flag != nil && variable == Variable(flag.Name):
			settings = append(settings, setting{flag: flag, values: []string{value}, origin: variable})
		case flag != nil:
			errs = append(errs, fmt.Errorf("%s: write %s", variable, Variable(flag.Name)))
		case slices.Contains(notSettings, name):
		default:
			if near := s.nearest(name); near != "" {
				errs = append(errs, fmt.Errorf("%s is not a setting: did you mean %s? Unset it if it is not for sqube", variable, Variable(near)))
			}
		}
	}
	return settings, errors.Join(errs...)
}
