package workload

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/sqube/sqube/test/robustness/history"
)

// The annotations and the label of an object that hold the mark, amount and group of history.Object.
const (
	markAnnotation   = "robustness/mark"
	amountAnnotation = "robustness/amount"
	groupLabel       = "group"
)

// groups are the values of the label.
var groups = []string{"a", "b"}

// collection is where the objects of a kind are.
type collection struct {
	resource, apiVersion, kind, path string
	content                          map[string]any // apart from the metadata
}

// Namespace is the namespace of all objects.
const Namespace = "robustness"

var (
	configMaps = collection{"configmaps", "v1", "ConfigMap", "/api/v1/namespaces/" + Namespace + "/configmaps", nil}
	leases     = collection{"leases", "coordination.k8s.io/v1", "Lease", "/apis/coordination.k8s.io/v1/namespaces/" + Namespace + "/leases",
		map[string]any{"spec": map[string]any{"leaseDurationSeconds": 15}}}
	gadgets     = collection{"gadgets", gadgetGroup + "/v1", "Gadget", "/apis/" + gadgetGroup + "/v1/namespaces/" + Namespace + "/gadgets", nil}
	collections = []collection{configMaps, leases, gadgets}
)

const (
	gadgetGroup = "robustness.example.com"
	definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
)

// gadgetDefinition defines the gadgets, which are custom resources.
var gadgetDefinition = map[string]any{
	"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
	"metadata": map[string]any{"name": "gadgets." + gadgetGroup},
	"spec": map[string]any{
		"group": gadgetGroup, "scope": "Namespaced", "names": map[string]any{"plural": "gadgets", "kind": "Gadget"},
		"versions": []any{map[string]any{
			"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}},
		}},
	},
}

func (c collection) key(name string) history.Key {
	return history.Key{Resource: c.resource, Name: name}
}

// object is the part of an object's JSON that is used.
type object struct {
	Metadata struct {
		Name, UID, ResourceVersion string
		Labels, Annotations        map[string]string
	}
}

func (o *object) recorded() (history.Object, error) {
	version, err := parseVersion(o.Metadata.ResourceVersion)
	amount := 0
	if text := o.Metadata.Annotations[amountAnnotation]; err == nil && text != "" {
		amount, err = strconv.Atoi(text)
	}
	return history.Object{
		Name: o.Metadata.Name, UID: o.Metadata.UID, Version: version,
		Mark: o.Metadata.Annotations[markAnnotation], Group: o.Metadata.Labels[groupLabel], Amount: amount,
	}, err
}

// parseVersion parses a resourceVersion: a comparable number (KEP-5504).
func parseVersion(text string) (uint64, error) {
	version, err := strconv.ParseUint(text, 10, 64)
	if err != nil || version == 0 {
		return 0, fmt.Errorf("%q is not a resourceVersion", text)
	}
	return version, nil
}

// begin returns an operation that starts now, on a random server.
func (c *client) begin(verb history.Verb, key history.Key) *history.Operation {
	return &history.Operation{Client: c.id, Server: c.anywhere(), Verb: verb, Key: key, Call: c.recorder.Now()}
}

// beginWrite is begin for a write that sets a mark and a group.
func (c *client) beginWrite(verb history.Verb, key history.Key, group string) *history.Operation {
	c.marks++
	o := c.begin(verb, key)
	o.Mark, o.Group = fmt.Sprintf("%d-%d", c.id, c.marks), group
	return o
}

// anyGroup returns a random group.
func (c *client) anyGroup() string { return groups[c.random.IntN(len(groups))] }

// end records an operation, which has just returned the error.
func (c *client) end(o *history.Operation, got *object, err error) *history.Operation {
	if err == nil && o.Verb != history.Delete {
		if o.Object, err = got.recorded(); err != nil {
			c.refusals(fmt.Errorf("%s %s by client %d: %w", o.Verb, o.Key, c.id, err))
		}
	}
	if o.Outcome = outcome(err); err != nil {
		o.Error = err.Error()
	}
	o.Return = c.recorder.Now()
	c.recorder.Operation(o)
	return o
}

// manifest returns the object that an operation writes.
func (c collection) manifest(o *history.Operation) map[string]any {
	annotations := map[string]any{markAnnotation: o.Mark}
	if o.Transaction != "" {
		annotations[amountAnnotation] = strconv.Itoa(o.Amount)
	}
	metadata := map[string]any{
		"name":        o.Key.Name,
		"annotations": annotations,
		"labels":      map[string]any{groupLabel: o.Group},
	}
	if o.IfVersion != 0 {
		metadata["resourceVersion"] = strconv.FormatUint(o.IfVersion, 10)
	}
	m := map[string]any{"apiVersion": c.apiVersion, "kind": c.kind, "metadata": metadata}
	for field, value := range c.content {
		m[field] = value
	}
	return m
}

func (c *client) create(in collection, name string) *history.Operation {
	o := c.beginWrite(history.Create, in.key(name), c.anyGroup())
	var got object
	err := c.send(o.Server, http.MethodPost, in.path, "application/json", in.manifest(o), &got)
	return c.end(o, &got, err)
}

// update replaces the object, with the version as the precondition unless it is 0.
func (c *client) update(in collection, name string, ifVersion uint64) *history.Operation {
	o := c.beginWrite(history.Update, in.key(name), c.anyGroup())
	o.IfVersion = ifVersion
	var got object
	err := c.send(o.Server, http.MethodPut, in.path+"/"+name, "application/json", in.manifest(o), &got)
	return c.end(o, &got, err)
}

func (c *client) apply(in collection, name, group string) *history.Operation {
	o := c.beginWrite(history.Apply, in.key(name), group)
	path := fmt.Sprintf("%s/%s?force=true&fieldManager=client-%d", in.path, name, c.id)
	var got object
	err := c.send(o.Server, http.MethodPatch, path, "application/apply-patch+yaml", in.manifest(o), &got)
	return c.end(o, &got, err)
}

// delete deletes the object, with the UID and the version as preconditions unless they are "" and 0.
func (c *client) delete(in collection, name, ifUID string, ifVersion uint64) *history.Operation {
	o := c.begin(history.Delete, in.key(name))
	o.IfUID, o.IfVersion = ifUID, ifVersion
	preconditions := map[string]any{}
	if ifUID != "" {
		preconditions["uid"] = ifUID
	}
	if ifVersion != 0 {
		preconditions["resourceVersion"] = strconv.FormatUint(ifVersion, 10)
	}
	options := map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
	var status struct{ Details struct{ UID string } }
	err := c.send(o.Server, http.MethodDelete, in.path+"/"+name, "application/json", options, &status)
	o.Object.UID = status.Details.UID
	return c.end(o, nil, err)
}

func (c *client) get(in collection, name string) *history.Operation {
	o := c.begin(history.Get, in.key(name))
	var got object
	err := c.send(o.Server, http.MethodGet, in.path+"/"+name, "", nil, &got)
	return c.end(o, &got, err)
}
