package trial

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// relations are the objects to which one belongs.
type relations struct {
	owners  []owner
	parents []key // the nearest first
	targets []key // that it changes
	labels  map[string]any
	node    string
	matches func(labels map[string]any) bool // the Pods that it counts
}

// relate notes to what an object belongs.
func (c *comparison) relate(e *effect, object map[string]any) {
	e.owners = ownersOf(object)
	e.labels, _ = field(object, "metadata", "labels").(map[string]any)
	ns := e.key.namespace
	in := func(resource schema.GroupResource, namespace, name string) {
		if name != "" {
			e.parents = append(e.parents, key{resource, namespace, name})
		}
	}
	switch e.key.GroupResource {
	case pods:
		e.node = text(object, "spec", "nodeName")
		in(nodes, "", e.node)
	case endpointSlices:
		in(services, ns, text(e.labels, "kubernetes.io/service-name"))
		for _, endpoint := range items(object, "endpoints") {
			in(pods, ns, text(endpoint, "targetRef", "name"))
		}
	case endpoints:
		in(services, ns, e.key.name)
		for _, subset := range items(object, "subsets") {
			for _, address := range append(items(subset, "addresses"), items(subset, "notReadyAddresses")...) {
				in(pods, ns, text(address, "targetRef", "name"))
			}
		}
	case autoscalers:
		group, _ := schema.ParseGroupVersion(text(object, "spec", "scaleTargetRef", "apiVersion"))
		if resource, _, ok := c.trial.served.ResourceOf(schema.GroupKind{Group: group.Group, Kind: text(object, "spec", "scaleTargetRef", "kind")}); ok {
			in(resource, ns, text(object, "spec", "scaleTargetRef", "name"))
			e.targets = e.parents
		}
	case claims:
		for name := e.key.name; strings.Contains(name, "-"); {
			_, name, _ = strings.Cut(name, "-")
			in(pods, ns, name)
			in(statefulSets, ns, numbered.ReplaceAllString(name, ""))
		}
	case volumes:
		in(claims, text(object, "spec", "claimRef", "namespace"), text(object, "spec", "claimRef", "name"))
	case attachments:
		in(volumes, "", text(object, "spec", "source", "persistentVolumeName"))
		in(nodes, "", text(object, "spec", "nodeName"))
	case budgets:
		selector, _ := field(object, "spec", "selector", "matchLabels").(map[string]any)
		e.matches = func(labels map[string]any) bool { return includes(labels, selector) }
	case quotas:
		e.matches = func(map[string]any) bool { return true }
	}
	if reference := field(object, "spec", "parentRef"); reference != nil {
		in(schema.GroupResource{Group: text(reference, "group"), Resource: text(reference, "resource")}, text(reference, "namespace"), text(reference, "name"))
	}
	if name, custom := c.trial.served.Definition(e.key.GroupResource); custom {
		in(definitions, "", name)
	}
	in(namespaces, "", ns)
}

var numbered = regexp.MustCompile(`-[0-9]+$`)

func includes(labels, selector map[string]any) bool {
	for name, value := range selector {
		if labels[name] != value {
			return false
		}
	}
	return len(selector) > 0
}

// guessOwners gives objects that came and went, and were not read, owners like those of their like that were.
func (c *comparison) guessOwners() {
	read := map[key]*effect{}
	for _, e := range c.effects {
		if len(e.owners) > 0 {
			read[e.key.alike()] = e
		}
	}
	for _, e := range c.effects {
		like := read[e.key.alike()]
		if e.life.after != nil || e.life.before != nil || like == nil {
			continue
		}
		o := like.owners[0]
		o.uid = ""
		if generatedName.ReplaceAllString(like.key.name, "") == o.name { // each is of another
			o.name = generatedName.ReplaceAllString(e.key.name, "")
		}
		e.owners = []owner{o}
	}
}

// place finds of each effect the one that brought it about.
func (c *comparison) place() {
	c.guessOwners()
	c.replace()
	for _, e := range c.effects {
		for _, target := range e.targets {
			if t := c.byKey[target]; t != nil && !t.root && e.root {
				c.under(t, e)
			}
		}
	}
	for _, e := range c.effects {
		if e.parent != nil {
			continue
		}
		if c.placeEvicted(e); e.root || e.parent != nil {
			continue
		}
		for _, o := range e.owners {
			if c.under(e, c.owner(e, o)) {
				break
			}
		}
		for _, parent := range e.parents {
			if e.parent == nil {
				c.under(e, c.byKey[parent].placeFor(e))
			}
		}
		c.under(e, c.source(e))
	}
	for _, e := range c.effects {
		if e.parent == nil && e.matches != nil && !e.root {
			c.under(e, c.first(func(p *effect) bool {
				return p.key.GroupResource == pods && p.key.namespace == e.key.namespace && e.matches(p.labels)
			}).top())
		}
	}
}

// source returns what the user has changed and an object is made from, that does not name it.
func (c *comparison) source(e *effect) *effect {
	of, is := schema.GroupResource{}, func(*effect) bool { return true }
	switch {
	case e.key.GroupResource == apiServices:
		_, group, _ := strings.Cut(e.key.name, ".")
		of, is = definitions, func(d *effect) bool { return strings.HasSuffix(d.key.name, "."+group) }
	case slices.Contains(e.By, "clusterrole-aggregation-controller"):
		of = clusterRoles
	}
	return c.first(func(r *effect) bool { return r.root && r.key.GroupResource == of && is(r) })
}

// placeFor returns where something is placed that belongs to an object: of endpoints of Pods, below what the Pods are of.
func (e *effect) placeFor(other *effect) *effect {
	if other.key.GroupResource != endpointSlices && other.key.GroupResource != endpoints {
		return e
	}
	for e != nil && e.parent != nil && (e.key.GroupResource == pods || e.key.GroupResource == replicaSets) {
		e = e.parent
	}
	return e
}

// placeHeld places what was stopped below what stopped it, if the user has changed that.
func (c *comparison) placeHeld() {
	for _, h := range c.result.Held {
		by := c.first(func(r *effect) bool { return r.root && r.Name == h.By && slices.Contains(stoppers[h.Kind], r.Resource) })
		if by == nil {
			continue
		}
		version, _ := schema.ParseGroupVersion(h.Object.APIVersion)
		held := key{schema.GroupResource{Group: version.Group, Resource: h.Object.Resource}, h.Object.Namespace, h.Object.Name}
		for _, e := range c.effects {
			if e.parent == nil && !e.root && (e.key.alike() == held.alike() || c.owned(e, held)) {
				c.under(e, by)
			}
		}
	}
}

// stoppers are the resources of what stops requests, by the kind of a Hold.
var stoppers = map[string][]string{
	"quota": {"resourcequotas"}, "policy": {"validatingadmissionpolicies"}, "webhook": {"validatingwebhookconfigurations", "mutatingwebhookconfigurations"},
}

// owned reports whether an object is another's, in either copy.
func (c *comparison) owned(e *effect, by key) bool {
	for _, o := range e.owners {
		if resource, _, ok := c.trial.served.ResourceOf(o.GroupKind()); ok && (key{resource, e.key.namespace, o.name}).alike() == by.alike() {
			return true
		}
	}
	return false
}

// owner returns the effect on an owner, or on the owner of that.
func (c *comparison) owner(e *effect, o owner) *effect {
	for range 5 {
		resource, namespaced, ok := c.trial.served.ResourceOf(o.GroupKind())
		if !ok {
			return nil
		}
		k := key{GroupResource: resource, name: o.name}
		if namespaced {
			k.namespace = e.key.namespace
		}
		if found := c.byKey[k]; found != nil {
			return found
		}
		l := c.trial.lives[k]
		if l == nil {
			return nil
		}
		owners := ownersOf(decode(l.after))
		if len(owners) == 0 {
			return nil
		}
		o = owners[0]
	}
	return nil
}

// under places an effect below another, and reports whether it could: not below itself.
func (c *comparison) under(e, parent *effect) bool {
	if parent == nil || e.parent != nil {
		return false
	}
	for above := parent; above != nil; above = above.parent {
		if above == e {
			return false
		}
	}
	e.parent = parent
	return true
}

func (c *comparison) first(is func(*effect) bool) *effect {
	if i := slices.IndexFunc(c.effects, is); i >= 0 {
		return c.effects[i]
	}
	return nil
}

// top returns the uppermost effect above one.
func (e *effect) top() *effect {
	for e != nil && e.parent != nil {
		e = e.parent
	}
	return e
}

// replace places new Pods below those that they replace, if their owner is as it was.
func (c *comparison) replace() {
	gone := map[types.UID][]*effect{}
	for _, e := range c.effects {
		if e.key.GroupResource == pods && e.Operation == Deleted && len(e.owners) > 0 {
			gone[e.owners[0].uid] = append(gone[e.owners[0].uid], e)
		}
	}
	for _, e := range c.effects {
		if e.key.GroupResource != pods || e.Operation != Created || len(e.owners) == 0 || e.root {
			continue
		}
		o := e.owners[0]
		if found := c.owner(e, o); found != nil && len(found.Diff) > 0 {
			continue
		}
		if left := gone[o.uid]; len(left) > 0 {
			c.under(e, left[0])
			gone[o.uid] = left[1:]
		}
	}
}

// placeEvicted places a Pod that has left a node, or was replaced, below the node, if the user changed that and not what the Pod is of.
func (c *comparison) placeEvicted(e *effect) {
	left := e.key.GroupResource == pods && (e.Operation == Deleted || e.Operation == Replaced) && len(e.owners) > 0
	if left && (e.root || c.owner(e, e.owners[0]) == nil) {
		if node := c.byKey[key{nodes, "", e.node}]; node != nil && node.root {
			c.under(e, node)
		}
	}
}

// plant builds the trees of the result.
func (c *comparison) plant() {
	var tree, elsewhere []*Object
	for _, e := range c.effects {
		switch {
		case e.parent != nil:
			e.parent.Caused = append(e.parent.Caused, e.Object)
		case e.root:
			tree = append(tree, e.Object)
		default:
			elsewhere = append(elsewhere, e.Object)
		}
	}
	c.result.Tree, c.result.Elsewhere = fold(tree), fold(elsewhere)
}

// mostApart is how many objects side by side are told apart by more than their kinds and what was done to them.
const mostApart = 12

// fold folds objects that have been changed in the same way, and what followed.
func fold(objects []*Object) []*Object {
	for _, o := range objects {
		o.Caused = fold(o.Caused)
	}
	folded := foldBy(objects, (*Object).shape)
	if len(folded) > mostApart {
		folded = foldBy(folded, (*Object).outline)
	}
	return folded
}

func foldBy(objects []*Object, shape func(*Object) string) (folded []*Object) {
	seen := map[string]*Object{}
	for _, o := range objects {
		shape := shape(o)
		if first := seen[shape]; first != nil {
			first.Alike += 1 + o.Alike
			first.First, first.Last = min(first.First, o.First), max(first.Last, o.Last)
			first.Writes += o.Writes
			continue
		}
		seen[shape] = o
		folded = append(folded, o)
	}
	return folded
}

// shape is what objects that are folded have in common.
func (o *Object) shape() string {
	s := &strings.Builder{}
	fmt.Fprintf(s, "%s %s %s %s %q %q", o.APIVersion, o.Kind, o.Namespace, o.Operation, o.State, o.By)
	for _, d := range o.Diff {
		fmt.Fprintf(s, " %q", d)
	}
	for _, below := range o.Caused {
		fmt.Fprintf(s, " (%s %d)", below.shape(), below.Alike)
	}
	return s.String()
}

// outline is what many objects have in common that are folded since they are many.
func (o *Object) outline() string {
	s := &strings.Builder{}
	fmt.Fprintf(s, "%s %s %s %q %q", o.APIVersion, o.Kind, o.Operation, digits.ReplaceAllString(o.State, "0"), o.By)
	for _, d := range o.Diff {
		fmt.Fprintf(s, " %q", d.Path)
	}
	for _, below := range o.Caused {
		fmt.Fprintf(s, " (%s)", below.outline())
	}
	return s.String()
}
