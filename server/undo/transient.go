package undo

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"github.com/sqube/sqube/sqlstore/history"
)

// records are the resources in which controllers and kubelets write down what goes on. They write it again, so it is not brought back,
// unless a person wrote it.
var records = map[string]bool{
	"events": true, "events.events.k8s.io": true, "leases.coordination.k8s.io": true, "leasecandidates.coordination.k8s.io": true,
	"resourceslices.resource.k8s.io": true, "ipaddresses.networking.k8s.io": true, "storageversions.internal.apiserver.k8s.io": true,
	"csinodes.storage.k8s.io": true, "csistoragecapacities.storage.k8s.io": true, "volumeattachments.storage.k8s.io": true,
}

// leftRecords is why they are left out.
const leftRecords = "controllers and kubelets make them"

func (k key) record() bool { return records[k.full()] }

// person reports whether a change was made by a person, or in the name of somebody else.
func person(c *history.Change) bool {
	return !automatic(c) && (c.ImpersonatedUser != "" || !strings.HasPrefix(c.User, serviceaccount.ServiceAccountUsernamePrefix))
}

// walker is walk or walkAll.
type walker func(ctx context.Context, q history.Query, only func(*history.Change) bool, yield func(*change) error) error

// peoples returns the uids of the records of a resource, in the namespace of q, that a person has written.
func peoples(ctx context.Context, walk walker, q history.Query, resource history.Resource) (map[string]bool, error) {
	found := map[string]bool{}
	only := func(c *history.Change) bool { return c.Operation != deletion && person(c) }
	err := walk(ctx, history.Query{Resource: &resource, Namespace: q.Namespace}, only, func(c *change) error {
		found[c.UID] = true
		return nil
	})
	return found, err
}

// walk calls add with the changes of q that are taken back if only is true: not those of records by controllers, nor deletions of records
// that no person has written. Of these there can be many, so they are only counted.
func (s *selection) walk(ctx context.Context, q history.Query, only func(*history.Change) bool, add func(*change) error) error {
	deleted := map[history.Resource]int{}
	err := s.past.walk(ctx, q, only, func(c *change) error {
		switch k := c.key(); {
		case !k.record():
			return add(c)
		case c.Operation == deletion:
			deleted[history.Resource{Group: c.Group, Name: c.Resource}]++
		case person(c.Change):
			return add(c)
		}
		return nil
	})
	for resource, n := range deleted {
		if err != nil {
			return err
		}
		var people map[string]bool
		if people, err = peoples(ctx, s.past.walk, q, resource); err != nil {
			return err
		}
		if len(people) > 0 {
			q.Resource = &resource
			theirs := func(c *history.Change) bool {
				return c.Operation == deletion && people[c.UID] && (only == nil || only(c))
			}
			err = s.past.walk(ctx, q, theirs, func(c *change) error {
				n--
				return add(c)
			})
		}
		if n > 0 {
			s.left[resource.String()] += n
		}
	}
	return err
}

// leftNotes say what is left out without a step.
func (s *selection) leftNotes() (notes []string) {
	for _, resource := range slices.Sorted(maps.Keys(s.left)) {
		notes = append(notes, fmt.Sprintf("left out: %d %s: %s", s.left[resource], resource, leftRecords))
	}
	return notes
}
