package controllers

import (
	"fmt"
	"slices"
	"strings"
)

const (
	// All selects every controller except those that run only if they are named.
	All = "*"
	// API selects every controller of this package.
	API = "api"
)

// Names returns kube-controller-manager's names of the controllers of this package.
func Names() []string {
	names := make([]string, 0, len(all))
	for _, c := range all {
		names = append(names, c.fullName())
	}
	return names
}

// Validate checks a selection from the controllers of this package and others, in the syntax of kube-controller-manager's
// --controllers: "*" for all, "name" for one, "-name" for all but that one. "api" for all of this package, "-*" for none,
// like an empty selection. kube-controller-manager's former names are valid too.
func Validate(selection []string, others []Controller) error {
	known := Config{Others: others}.known()
	for _, item := range selection {
		name := strings.TrimPrefix(item, "-")
		if name != All && item != API && !slices.ContainsFunc(known, func(c controller) bool { return c.called(name) }) {
			names := Names()
			for _, other := range others {
				names = append(names, other.Name)
			}
			return fmt.Errorf("%q is not in the list of known controllers: %s", name, strings.Join(names, ", "))
		}
	}
	for _, c := range all {
		if how := c.selected(selection); how == named && c.uses != "" && !Runs(selection, nil, c.uses+suffix) {
			return fmt.Errorf("%s needs %s%s", c.fullName(), c.uses, suffix)
		}
	}
	return nil
}

// choice is how a selection selects a controller.
type choice int

const (
	off        choice = iota
	byWildcard        // by "*" or "api"
	named
)

// selected returns how a selection selects c. The first match counts, as in kube-controller-manager.
func (c controller) selected(selection []string) choice {
	for _, item := range selection {
		if name, without := strings.CutPrefix(item, "-"); c.called(name) {
			if without {
				return off
			}
			return named
		}
	}
	if !c.off && slices.Contains(selection, All) || !c.other && slices.Contains(selection, API) {
		return byWildcard
	}
	return off
}

func (c controller) fullName() string { return c.name + suffix }

func (c controller) called(name string) bool {
	return name == c.fullName() || slices.Contains(c.aliases, name)
}

// choose returns the known controllers with at least the given choice.
func choose(known []controller, selection []string, least choice) []controller {
	var chosen []controller
	for _, c := range known {
		if c.selected(selection) >= least {
			chosen = append(chosen, c)
		}
	}
	return chosen
}

// Runs reports whether a selection includes any of the named controllers, of this package or others.
func Runs(selection []string, others []Controller, names ...string) bool {
	return slices.ContainsFunc(choose(Config{Others: others}.known(), selection, byWildcard), func(c controller) bool {
		return slices.ContainsFunc(names, c.called)
	})
}

// Selects reports whether a selection includes any controller of other packages.
func Selects(selection []string, others []Controller) bool {
	return slices.ContainsFunc(others, func(c Controller) bool { return c.internal().selected(selection) != off })
}
