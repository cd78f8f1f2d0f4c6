package main

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/server/crd"
)

// hide replaces the secret values in a version of an object, or in two, by their sizes. Values that differ between the two still do.
func (c *cluster) hide(ctx context.Context, resource schema.GroupResource, versions ...map[string]any) (err error) {
	hidden := make([]*changes.Hidden, len(versions))
	for i, version := range versions {
		if hidden[i], err = c.hiddenIn(ctx, resource, version); err != nil {
			return err
		}
	}
	changes.HideIn(hidden, versions)
	return nil
}

// hiddenIn returns which values of a version of an object are secret. For a custom resource, the OpenAPI document of its API has that.
func (c *cluster) hiddenIn(ctx context.Context, resource schema.GroupResource, version map[string]any) (*changes.Hidden, error) {
	if crd.BuiltIn(resource) || version == nil {
		return changes.HiddenInBuiltIn(resource), nil
	}
	kind := (&unstructured.Unstructured{Object: version}).GroupVersionKind()
	if known, ok := c.hidden[kind]; ok {
		return known, nil
	}
	text, err := answer(c.client.Get().AbsPath("/openapi/v3/apis", kind.Group, kind.Version).SetHeader("Accept", "application/json").Do(ctx))
	if err != nil {
		return nil, fmt.Errorf("reading which fields of %s are secret: %w", resource, terminal.OneLine(err))
	}
	var document struct {
		Components struct {
			Schemas map[string]map[string]any `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	var schemas []map[string]any
	for _, s := range document.Components.Schemas {
		kinds, _ := s["x-kubernetes-group-version-kind"].([]any)
		for _, k := range kinds {
			if is, _ := k.(map[string]any); is["group"] == kind.Group && is["version"] == kind.Version && is["kind"] == kind.Kind {
				schemas = append(schemas, s)
			}
		}
	}
	if c.hidden == nil {
		c.hidden = map[schema.GroupVersionKind]*changes.Hidden{}
	}
	c.hidden[kind] = changes.HiddenInSchemas(schemas...)
	return c.hidden[kind], nil
}
