package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sqube/sqube/cmd/sqube/internal/manifests"
	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/server/changes"
)

// changeInput is a change as an agent gives it.
type changeInput struct {
	Manifest  string        `json:"manifest,omitempty" jsonschema:"YAML or JSON of the objects to apply, by server-side apply: the fields to set, or whole objects"`
	Delete    []objectInput `json:"delete,omitempty" jsonschema:"the objects to delete"`
	Namespace string        `json:"namespace,omitempty" jsonschema:"the namespace of objects that name none; if unset, that of the context"`
	Force     bool          `json:"force_conflicts,omitempty" jsonschema:"take fields over that other field managers have"`
}

type objectInput struct {
	Resource string `json:"resource" jsonschema:"the resource as for kubectl"`
	Name     string `json:"name" jsonschema:"the name of the object"`
}

// mostManifest is how many bytes a manifest can have.
const mostManifest = 1 << 20

// target is an object that a change writes.
type target struct {
	mapping *meta.RESTMapping
	object  *unstructured.Unstructured // what is applied; of one that is deleted, only its names
}

// agentChange is a change that is complete: it says the same wherever it is read.
type agentChange struct {
	targets []*target
	delete  bool // they are deleted, or else applied
	force   bool
	unknown bool // some objects are of kinds that are not served
	plain   string
}

// change completes what an agent has given.
func (c *agentCall) change(in *changeInput) (*agentChange, error) {
	switch {
	case len(in.Manifest) > mostManifest:
		return nil, fmt.Errorf("the manifest has more than %d bytes", mostManifest)
	case strings.TrimSpace(in.Manifest) == "" && len(in.Delete) == 0:
		return nil, errors.New("want a manifest, or objects to delete")
	case strings.TrimSpace(in.Manifest) != "" && len(in.Delete) > 0:
		return nil, errors.New("want either a manifest or objects to delete: two changes are tried one after the other")
	}
	change := &agentChange{force: in.Force, delete: len(in.Delete) > 0, plain: in.Manifest}
	var objects []manifests.Object
	var err error
	if strings.TrimSpace(in.Manifest) != "" {
		var files manifests.Files
		files.Filenames = []string{"-"} // nothing else: the agent names no files and no URLs
		if objects, err = files.Read(strings.NewReader(in.Manifest)); err != nil {
			return nil, terminal.OneLine(err)
		}
	}
	manifests.Sort(objects)
	for _, object := range objects {
		if err := change.apply(c, object, in.Namespace); err != nil {
			return nil, err
		}
	}
	for _, object := range in.Delete {
		if err := change.remove(c, object, in.Namespace); err != nil {
			return nil, err
		}
	}
	return change, nil
}

func (a *agentChange) apply(c *agentCall, object manifests.Object, namespace string) error {
	kind := object.GroupVersionKind()
	if kind.Group == changes.GroupVersion.Group {
		return fmt.Errorf("%s can't be applied: use the tools for history", manifests.Name(object.Unstructured))
	}
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	switch {
	case meta.IsNoMatchError(err):
		a.unknown = true // a definition in the same change can be of it
		return nil
	case err != nil:
		return terminal.OneLine(err)
	case object.GetName() == "":
		return fmt.Errorf("a %s has no name", kind.Kind)
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		object.SetNamespace("")
	} else if object.GetNamespace() == "" {
		if namespace, err = c.scope(mapping, namespace, false); err != nil {
			return err
		}
		object.SetNamespace(namespace)
	}
	for _, field := range []string{"resourceVersion", "uid", "managedFields", "creationTimestamp", "generation"} { // as objects are read
		unstructured.RemoveNestedField(object.Object, "metadata", field)
	}
	a.targets = append(a.targets, &target{mapping: mapping, object: object.Unstructured})
	return nil
}

func (a *agentChange) remove(c *agentCall, in objectInput, namespace string) error {
	if in.Resource == "" || in.Name == "" {
		return errors.New("an object to delete needs a resource and a name")
	}
	mapping, err := c.mapping(in.Resource)
	if err != nil {
		return terminal.OneLine(err)
	}
	if namespace, err = c.scope(mapping, namespace, false); err != nil {
		return err
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(mapping.GroupVersionKind)
	object.SetNamespace(namespace)
	object.SetName(in.Name)
	a.targets = append(a.targets, &target{mapping: mapping, object: object})
	return nil
}

// hash identifies the change.
func (a *agentChange) hash() (string, error) {
	var objects []map[string]any
	for _, t := range a.targets {
		objects = append(objects, t.object.Object)
	}
	text, err := json.Marshal(map[string]any{"delete": a.delete, "force": a.force, "objects": objects})
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), err
}

// words lists what the change does.
func (a *agentChange) words() string {
	var lines []string
	for _, t := range a.targets {
		lines = append(lines, map[bool]string{true: "delete ", false: "apply "}[a.delete]+manifests.Name(t.object))
	}
	return strings.Join(lines, "\n")
}

// namespaces are those in which the change writes.
func (a *agentChange) namespaces() (all []string) {
	for _, t := range a.targets {
		if namespace := t.object.GetNamespace(); namespace != "" && !slices.Contains(all, namespace) {
			all = append(all, namespace)
		}
	}
	return all
}

// details is words with what is applied, for the person who confirms it.
func (a *agentChange) details() (string, error) {
	if a.delete {
		return a.words(), nil
	}
	var parts []string
	for _, t := range a.targets {
		text, err := terminal.YAML(t.object.Object)
		if err != nil {
			return "", err
		}
		parts = append(parts, "apply "+manifests.Name(t.object)+":\n"+string(text))
	}
	return strings.Join(parts, "\n"), nil
}

// within refuses a change that writes anything outside of namespaces.
func (a *agentChange) within(namespaces []string) error {
	if a.unknown {
		return errors.New("some objects are of kinds that the cluster does not serve: this can be tried, and not applied")
	}
	for _, t := range a.targets {
		switch namespace := t.object.GetNamespace(); {
		case namespace == "":
			return fmt.Errorf("%s is in no namespace: agents apply only what is in these namespaces: %s", manifests.Name(t.object), strings.Join(namespaces, ", "))
		case !slices.Contains(namespaces, namespace):
			return fmt.Errorf("%s is in namespace %s: agents apply only what is in these namespaces: %s", manifests.Name(t.object), namespace, strings.Join(namespaces, ", "))
		}
	}
	return nil
}

// input returns the change for sqube try: a Transaction, or the manifest if it has kinds that are not served yet.
func (a *agentChange) input() ([]byte, error) {
	if a.unknown {
		return []byte(a.plain), nil
	}
	operations := []any{}
	for _, t := range a.targets {
		operation := map[string]any{"verb": "apply", "object": t.object.Object, "fieldManager": agentManager, "fieldValidation": validation, "force": a.force}
		if a.delete {
			version, kind := t.object.GroupVersionKind().ToAPIVersionAndKind()
			operation = map[string]any{"verb": "delete", "propagationPolicy": propagation, "target": map[string]any{
				"apiVersion": version, "kind": kind, "namespace": t.object.GetNamespace(), "name": t.object.GetName(),
			}}
		}
		operations = append(operations, operation)
	}
	return transactionOf(operations)
}

// transactionOf returns a Transaction for sqube try.
func transactionOf(operations []any) ([]byte, error) {
	return json.Marshal(map[string]any{
		"apiVersion": changes.GroupVersion.String(), "kind": "Transaction", "metadata": map[string]any{"name": agentManager}, "spec": map[string]any{"operations": operations},
	})
}

const (
	propagation = "Background"
	validation  = "Strict"
)

// state returns what each object of the change is like, so that it can be seen whether it has changed since, and the objects themselves.
// Controllers write the status all the time, which is not compared.
func (c *agentCall) state(ctx context.Context, a *agentChange) (map[string]string, map[*target]*unstructured.Unstructured, error) {
	states, live := map[string]string{}, map[*target]*unstructured.Unstructured{}
	for _, t := range a.targets {
		group := t.mapping.Resource.GroupResource()
		key := named{group, t.object.GetNamespace(), t.object.GetName()}.String()
		found, err := c.get(ctx, group, t.mapping.Resource.Version, t.object.GetNamespace(), t.object.GetName(), 0)
		if err != nil {
			return nil, nil, err
		}
		if found == nil {
			states[key] = "absent"
			continue
		}
		live[t] = (&unstructured.Unstructured{Object: found}).DeepCopy()
		metadata, _ := withoutNoise(found)["metadata"].(map[string]any)
		delete(metadata, "generation")
		delete(found, "status")
		text, err := json.Marshal(found)
		if err != nil {
			return nil, nil, err
		}
		sum := sha256.Sum256(text)
		states[key] = hex.EncodeToString(sum[:])
	}
	return states, live, nil
}
