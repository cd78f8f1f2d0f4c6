package main

import (
	"fmt"
	"strings"
)

// missedTargets is the error, after all measurements, of figures that exceed their targets.
type missedTargets struct{ lines []string }

// Error names them.
func (m *missedTargets) Error() string { return "missed targets: " + strings.Join(m.lines, "; ") }

// target records that a figure should be at most the limit.
func (s *session) target(what string, value, limit figure) {
	if value > limit {
		s.missed = append(s.missed, fmt.Sprintf("%s: %.1f, not at most %.1f", what, value, limit))
	}
}

// judge returns an error if targets were missed and the sizes are strict.
func (s *session) judge() error {
	if len(s.missed) == 0 || !s.sizes.Strict {
		return nil
	}
	return &missedTargets{s.missed}
}
