package main

import (
	"context"
	"fmt"
)

// The phases of `bench size` run with 1% of the objects and watches, and with all of them.
const (
	few  = ", few objects"
	many = ", many objects"

	phaseSizePages    = "two pages"
	phaseSizeGet      = "get"
	phaseSizeSelector = "label selector"
	phaseSizeUpdate   = "update"
	phaseSizeWatch    = "update that a watch reports"
)

// sizeWork are the compared operations.
var sizeWork = []string{phaseSizeGet, phaseSizePages, phaseSizeSelector, phaseSizeUpdate, phaseSizeWatch}

// sizedObjects are the objects of `bench size`, and selectedObjects those that its label selector selects, as many at any size.
var (
	sizedObjects    = configMaps("sized")
	selectedObjects = labelledConfigMaps("sized", `{"bench":"selected"}`)
)

// sizedBody returns the body of a write to the ith object.
func sizedBody(i, revision int) []byte {
	const selected = 20
	if i < selected {
		return selectedObjects.body(selectedObjects.name(i), revision)
	}
	return sizedObjects.body(sizedObjects.name(i), revision)
}

// collectionSize is how many ConfigMaps there are, and how many of them, the first ones, each have their own watch.
type collectionSize struct{ objects, watches int }

// sizePhases measures the same work in a collection of two sizes.
func sizePhases(n sizes) []phase {
	small := collectionSize{max(1, n.Objects/100), max(1, n.Nodes/100)}
	large := collectionSize{n.Objects, n.Nodes}
	all := []phase{{"create" + few, false, grow(collectionSize{}, small), nil}}
	for _, work := range sizeWork { // once, for caches and plans
		all = append(all, phase{work + ", first time", false, small.operation(n, work), nil})
	}
	for _, work := range sizeWork {
		all = append(all, phase{work + few, false, small.operation(n, work), []row{cpuMicros}})
	}
	all = append(all, phase{"create" + many, false, grow(small, large), nil})
	for _, work := range sizeWork {
		all = append(all, phase{work + many, false, large.operation(n, work), []row{
			cpuMicros, cpuMicros.dividedBy(work+few, "of that with few"), p50.dividedBy(work+few, "p50, of that with few")}})
	}
	return append(all, phase{"memory", false, (*session).memory, []row{rss}})
}

// grow creates the missing objects and leaves the watches open.
func grow(from, to collectionSize) operation {
	return func(s *session, ctx context.Context) (result, error) {
		if err := s.makeNamespace(ctx); err != nil {
			return result{}, err
		}
		r, err := s.load(ctx, 64, to.objects-from.objects, func(ctx context.Context, c *client, i int) error {
			return c.do(ctx, post(sizedObjects.collection, sizedBody(from.objects+i, 0)))
		})
		if err != nil {
			return r, err
		}
		return r, to.watch(s)
	}
}

// watch leaves only these watches open, until the session ends.
func (size collectionSize) watch(s *session) (err error) {
	s.closeWatches()
	s.opened, err = s.openWatches(context.Background(), sizedObjects.collection, size.paths(), connectionsOf(size.watches, watchesPerConnection))
	return err
}

// paths returns the paths of the watches.
func (size collectionSize) paths() []string {
	paths := make([]string, size.watches)
	for i := range paths {
		paths[i] = watchOne(sizedObjects, i)
	}
	return paths
}

// operation returns the operation with a name.
func (size collectionSize) operation(n sizes, work string) operation {
	k := sizedObjects
	switch work {
	case phaseSizeGet:
		return read(k, 16, size.objects, n.Gets)
	case phaseSizePages:
		return walk(get(k.collection), n.Objects/200, 2, 10*n.Lists) // 500 of 100,000, and all of the few objects
	case phaseSizeSelector:
		return list(get(labelled(k.collection, selectedLabel)), 1, 50*n.Lists)
	case phaseSizeUpdate:
		return size.update(n.Writes)
	default:
		return size.report(max(1, n.Writes/2))
	}
}

// update replaces objects without a watch, all over the collection.
func (size collectionSize) update(n int) operation {
	return func(s *session, ctx context.Context) (result, error) {
		const stride = 7919 // a prime
		s.revision++
		return s.load(ctx, 16, n, func(ctx context.Context, c *client, i int) error {
			object := size.watches + i*stride%(size.objects-size.watches)
			r := put(sizedObjects.path(object), sizedBody(object, s.revision*n+i))
			return c.do(ctx, r)
		})
	}
}

// report replaces the watched objects in turn, which their watches report, and leaves such watches open.
func (size collectionSize) report(n int) operation {
	return func(s *session, ctx context.Context) (result, error) {
		s.closeWatches()
		s.revision++
		revision := s.revision // one digit
		r, err := fanOut{
			collection:  sizedObjects.collection,
			watches:     size.paths(),
			connections: connectionsOf(size.watches, watchesPerConnection),
			expected:    func(watch int) int { return (n - watch + size.watches - 1) / size.watches },
			changes:     n,
			change: func(i int) request {
				object := i % size.watches
				return put(sizedObjects.path(object), sizedBody(object, revision*1_000_000+i))
			},
			mark: fmt.Sprintf(`"revision":"%d`, revision),
		}.run(s, ctx)
		if err != nil {
			return r, err
		}
		return r, size.watch(s)
	}
}
