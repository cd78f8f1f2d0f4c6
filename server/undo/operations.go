package undo

import (
	"context"
	"encoding/json"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// tell adds to the steps of a plan what they write, for who tries it on a copy: there, the changes that it takes back are not known.
func (p *planner) tell(ctx context.Context, steps []Step) (err error) {
	for i := range steps {
		s := &steps[i]
		if s.Action == Leave || p.past.log.Served.Hidden(ctx, s.work.groupResource()) != nil {
			continue
		}
		if s.Operation, err = s.operation(); err != nil {
			return err
		}
	}
	return nil
}

// operation returns the operation of a transaction that does what a step does.
func (s *Step) operation() (*apiextensionsv1.JSON, error) {
	target := map[string]any{"apiVersion": s.Object.APIVersion, "kind": s.Object.Kind, "name": s.Object.Name}
	if s.Object.Namespace != "" {
		target["namespace"] = s.Object.Namespace
	}
	operation := map[string]any{"verb": s.Action, "target": target}
	switch s.Action {
	case Create:
		fields, err := decode(s.work.object)
		if err != nil {
			return nil, err
		}
		object := &unstructured.Unstructured{Object: fields}
		object.SetAPIVersion(s.Object.APIVersion)
		object.SetKind(s.Object.Kind)
		object.SetOwnerReferences(nil) // they may have other uids then
		operation = map[string]any{"verb": s.Action, "object": object.Object, "fieldManager": Manager}
	case Update:
		operation["verb"], operation["patchType"], operation["patch"], operation["fieldManager"] = "patch", "merge", json.RawMessage(s.work.patch), Manager
	case Delete:
		operation["propagationPolicy"] = metav1.DeletePropagationBackground
	}
	raw, err := json.Marshal(operation)
	return &apiextensionsv1.JSON{Raw: raw}, err
}
