package main

import "fmt"

// suite is a set of phases that one command runs, and the table of their figures.
type suite struct {
	name   string // of the command; "" is the command without any
	phases func(sizes) []phase
	rows   []row
}

var suites = []suite{
	{"", phases, rows},
	{"size", sizePhases, sizeRows},
	{"crowd", crowdPhases, crowdRows},
}

// suiteOf returns the suite of a command.
func suiteOf(command string) (suite, error) {
	for _, s := range suites {
		if s.name == command {
			return s, nil
		}
	}
	return suite{}, fmt.Errorf("unexpected argument %q; see --help", command)
}
