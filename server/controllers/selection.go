package controllers

import (
	"fmt"
	"slices"
	"strings"
)

// All is the selection of every controller.
const All = "*"

// Names are the controllers that there are, by the names that kube-controller-manager has for them.
func Names() []string {
	names := make([]string, 0, len(all))
	for _, c := range all {
		names = append(names, c.fullName())
	}
	return names
}

// Validate checks a selection, in the syntax of kube-controller-manager's --controllers: "*" for all, "name" for one,
// "-name" for all but that one. "-*" is for none, as is what names nothing. It takes kube-controller-manager's former names
// too.
func Validate(selection []string) error {
	for _, item := range selection {
		name := strings.TrimPrefix(item, "-")
		if name != All && !slices.ContainsFunc(all, func(c controller) bool { return c.called(name) }) {
			return fmt.Errorf("%q is not in the list of known controllers: %s", name, strings.Join(Names(), ", "))
		}
	}
	for _, c := range all {
		if how := c.selected(selection); how == named && c.uses != "" && !enabled(selection, c.uses) {
			return fmt.Errorf("%s needs %s-controller", c.fullName(), c.uses)
		}
	}
	return nil
}

// choice is what a selection says of a controller.
type choice int

const (
	off   choice = iota
	among        // one of all
	named
)

// selected returns what a selection says of c. What comes first in it counts, as in kube-controller-manager.
func (c controller) selected(selection []string) choice {
	for _, item := range selection {
		if name, without := strings.CutPrefix(item, "-"); c.called(name) {
			if without {
				return off
			}
			return named
		}
	}
	if slices.Contains(selection, All) {
		return among
	}
	return off
}

// enabled says whether a selection has the controller of a name without "-controller".
func enabled(selection []string, name string) bool {
	return slices.ContainsFunc(all, func(c controller) bool { return c.name == name && c.selected(selection) != off })
}

func (c controller) fullName() string { return c.name + "-controller" }

func (c controller) called(name string) bool {
	return name == c.fullName() || c.alias != "" && name == c.alias
}

// choose returns the controllers of which the selection says at least so much.
func choose(selection []string, least choice) []controller {
	var chosen []controller
	for _, c := range all {
		if c.selected(selection) >= least {
			chosen = append(chosen, c)
		}
	}
	return chosen
}
