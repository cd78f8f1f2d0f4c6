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

// importReport counts what an import took, and keeps why it did not take the rest.
type importReport struct {
	taken map[string]int // by resource
	left  map[leftKey]*leftObjects
	// serviceRanges are those of the old cluster, where it tells.
	serviceRanges []string
}

// leftKey is of objects that are left for one reason.
type leftKey struct{ resource, reason string }

// leftObjects are such objects, the first of them by name.
type leftObjects struct {
	count int
	names []string
}

// namesEnough is how many are named.
const namesEnough = 5

func (l *leftObjects) String() string {
	names := strings.Join(l.names, ", ")
	if names == "" {
		names = "the key" // which names no object
	}
	if more := l.count - len(l.names); more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return names
}

func (r *importReport) add(o *etcdimport.Result) {
	if o.Write == nil {
		key := leftKey{o.Resource, o.Reason}
		objects := r.left[key]
		if objects == nil {
			objects = &leftObjects{}
			r.left[key] = objects
		}
		if objects.count++; objects.count <= namesEnough {
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

func (r *importReport) total() (taken, left int) {
	for _, n := range r.taken {
		taken += n
	}
	for _, objects := range r.left {
		left += objects.count
	}
	return taken, left
}

// print writes a line for each resource of which something was taken, and for each reason why something was not.
func (r *importReport) print(out io.Writer) error {
	table := newTable(out, "RESOURCE", "TAKEN", "NOT TAKEN", "WHY")
	for _, resource := range slices.Sorted(maps.Keys(r.taken)) {
		table.row(resource, fmt.Sprint(r.taken[resource]), "", "")
	}
	byName := func(a, b leftKey) int {
		return cmp.Or(strings.Compare(a.resource, b.resource), strings.Compare(a.reason, b.reason))
	}
	for _, key := range slices.SortedFunc(maps.Keys(r.left), byName) {
		objects := r.left[key]
		why := fmt.Sprintf("%s: %s", objects, key.reason)
		table.row(key.resource, "", fmt.Sprint(objects.count), strings.Join(strings.Fields(why), " ")) // on one line
	}
	taken, left := r.total()
	table.row("total", fmt.Sprint(taken), fmt.Sprint(left), "")
	return table.end()
}
