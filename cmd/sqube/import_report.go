package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/sqube/sqube/server/etcdimport"
)

// importReport counts the imported objects, and records why others were skipped.
type importReport struct {
	taken   map[string]int // by resource
	skipped map[skippedKey]*skippedObjects
	// serviceRanges are those of the old cluster, if known.
	serviceRanges []string
}

// skippedKey identifies objects of a resource that are skipped for one reason.
type skippedKey struct{ resource, reason string }

// skippedObjects counts such objects and has the names of the first ones.
type skippedObjects struct {
	count int
	names []string
}

// maxNames is how many of them are named.
const maxNames = 5

func (l *skippedObjects) String() string {
	names := strings.Join(l.names, ", ")
	if names == "" {
		names = "the key" // without an object's name
	}
	if more := l.count - len(l.names); more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return names
}

func newImportReport() importReport {
	return importReport{taken: map[string]int{}, skipped: map[skippedKey]*skippedObjects{}}
}

func (r *importReport) add(o *etcdimport.Result) {
	if o.Write == nil {
		objects := r.skippedFor(skippedKey{o.Resource, o.Reason})
		if objects.count++; objects.count <= maxNames {
			objects.names = append(objects.names, o.Object)
		}
		return
	}
	r.taken[o.Resource]++
	if o.Resource == "servicecidrs.networking.k8s.io" && o.Object == "kubernetes" {
		var cidr networkingv1.ServiceCIDR
		if json.Unmarshal(o.Write.Value, &cidr) == nil {
			r.serviceRanges = cidr.Spec.CIDRs // none if it is encrypted
		}
	}
}

func (r *importReport) skippedFor(key skippedKey) *skippedObjects {
	objects := r.skipped[key]
	if objects == nil {
		objects = &skippedObjects{}
		r.skipped[key] = objects
	}
	return objects
}

func (r *importReport) total() (taken, skipped int) {
	for _, n := range r.taken {
		taken += n
	}
	for _, objects := range r.skipped {
		skipped += objects.count
	}
	return taken, skipped
}

// print writes a line for each resource that was imported, and for each reason why objects were skipped.
func (r *importReport) print(out io.Writer) error {
	table := newTable(out, "RESOURCE", "IMPORTED", "SKIPPED", "REASON")
	for _, resource := range slices.Sorted(maps.Keys(r.taken)) {
		table.row(resource, fmt.Sprint(r.taken[resource]), "", "")
	}
	byName := func(a, b skippedKey) int {
		return cmp.Or(strings.Compare(a.resource, b.resource), strings.Compare(a.reason, b.reason))
	}
	for _, key := range slices.SortedFunc(maps.Keys(r.skipped), byName) {
		objects := r.skipped[key]
		why, count := key.reason, ""
		if objects.count > 0 { // else it is of the resource as a whole
			why, count = fmt.Sprintf("%s: %s", objects, key.reason), fmt.Sprint(objects.count)
		}
		table.row(key.resource, "", count, strings.Join(strings.Fields(why), " ")) // on one line
	}
	taken, skipped := r.total()
	table.row("total", fmt.Sprint(taken), fmt.Sprint(skipped), "")
	return table.end()
}
