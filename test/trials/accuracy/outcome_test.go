package accuracy

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
)

// state is every object of a cluster at about one moment.
type state []unstructured.Unstructured

// unread are resources that are not compared: they are signs of life, other forms of objects, or no objects at all.
var unread = map[string]bool{"leases": true, "componentstatuses": true, "endpoints": true}

// resources returns the resources of a cluster that can be listed.
func resources(client discovery.DiscoveryInterface) ([]schema.GroupVersionResource, error) {
	lists, err := discovery.ServerPreferredResources(client)
	if err != nil {
		return nil, err
	}
	var found []schema.GroupVersionResource
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		if strings.HasSuffix(version.Group, ".sqube.io") || version.Group == "events.k8s.io" {
			continue
		}
		for i := range list.APIResources {
			if r := &list.APIResources[i]; slices.Contains(r.Verbs, "list") && !unread[r.Name] {
				found = append(found, version.WithResource(r.Name))
			}
		}
	}
	return found, nil
}

// read reads every object.
func read(ctx context.Context, client discovery.DiscoveryInterface, objects dynamic.Interface) (state, error) {
	all, err := resources(client)
	if err != nil {
		return nil, err
	}
	var s state
	for _, resource := range all {
		list, err := objects.Resource(resource).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) { // its definition was deleted
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", resource, err)
		}
		s = append(s, list.Items...)
	}
	return s, nil
}

// names returns the names of the objects that there are, for noting which Events are old.
func (s state) uids() map[string]bool {
	uids := map[string]bool{}
	for i := range s {
		uids[string(s[i].GetUID())] = true
	}
	return uids
}

// of reports whether an object is one of a scenario.
func (s *scenario) of(o *unstructured.Unstructured) bool {
	own := func(name string) bool { return name == s.name || strings.HasPrefix(name, s.name+"-") }
	switch {
	case o.GetKind() == "Event":
		name, _, _ := unstructured.NestedString(o.Object, "involvedObject", "name")
		return o.GetNamespace() == s.name || own(name)
	case o.GetNamespace() != "":
		return o.GetNamespace() == s.name
	case o.GetKind() == "CustomResourceDefinition":
		return strings.Contains(o.GetName(), "."+s.name+".")
	case o.GetKind() == "PersistentVolume":
		claim, _, _ := unstructured.NestedString(o.Object, "spec", "claimRef", "namespace")
		return claim == s.name || own(o.GetName())
	}
	return own(o.GetName())
}

// outcome is what a scenario has come to: objects without what is generated, by their kind and name; those whose names are generated are
// numbered.
type outcome map[string]any

// outcomeOf returns what a scenario has come to. Events are new if they are not among those before, and if they were not made before a time.
func outcomeOf(s *scenario, objects state, before map[string]bool, begin time.Time) outcome {
	groups, events := map[string][]any{}, map[string]map[string]bool{}
	for i := range objects {
		o := &objects[i]
		if !s.of(o) {
			continue
		}
		if o.GetKind() == "Event" {
			if !before[string(o.GetUID())] && !o.GetCreationTimestamp().Time.Before(begin.Truncate(time.Second)) {
				title, message := eventOf(o)
				if events[title] == nil {
					events[title] = map[string]bool{}
				}
				events[title][message] = true
			}
			continue
		}
		title := o.GetKind() + " " + plain(o.GetName())
		groups[title] = append(groups[title], normal("", o.Object))
	}
	out := outcome{}
	for title, alike := range groups {
		sort.Slice(alike, func(i, j int) bool { return text(alike[i]) < text(alike[j]) })
		for i, object := range alike {
			if strings.Contains(title, "{") {
				out[fmt.Sprintf("%s %d", title, i+1)] = object
			} else {
				out[title] = object
			}
		}
	}
	for title, messages := range events {
		var sorted []any
		for _, message := range slices.Sorted(maps.Keys(messages)) {
			sorted = append(sorted, message)
		}
		out[title] = map[string]any{"message": sorted}
	}
	return out
}

// eventOf returns what an Event is about, and what it says.
func eventOf(o *unstructured.Unstructured) (title, message string) {
	field := func(path ...string) string {
		text, _, _ := unstructured.NestedString(o.Object, path...)
		return plain(text)
	}
	return fmt.Sprintf("Event %s %s %s %s", field("type"), field("reason"), field("involvedObject", "kind"), field("involvedObject", "name")), field("message")
}
