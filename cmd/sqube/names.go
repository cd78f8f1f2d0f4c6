package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/klog/v2"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/server/builtin"
	"github.com/sqube/sqube/server/crd"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/inspect"
)

// versionPrefix is the version in RESOURCE.VERSION.GROUP, which kubectl accepts.
var versionPrefix = regexp.MustCompile(`^v[0-9]+((alpha|beta)[0-9]+)?(\.|$)`)

// definitions is where custom resources are defined.
var definitions = sqlstore.Resource{Group: "apiextensions.k8s.io", Name: "customresourcedefinitions"}

// resolve returns where the objects of a resource are stored, which is named as for kubectl: by its plural, singular, short name or
// kind, in any case, with or without a version and a group. Built-in resources come first. A name that no built-in or defined resource
// has is taken as it is, since its definition may be gone: known is false then. If several groups have the name, it is the first one
// with such an object, or the first one.
func (i *inspector) resolve(ctx context.Context, text string) (found sqlstore.Resource, known bool, err error) {
	klog.SetLogger(logr.Discard()) // the libraries log for servers
	built, err := builtin.New(func(made generic.StorageDecorator) generic.StorageDecorator { return made })
	if err != nil {
		return found, false, err
	}
	candidates := called(text, built.Names())
	if len(candidates) == 0 {
		defined, err := i.defined(ctx)
		if err != nil {
			return found, false, err
		}
		candidates = called(text, defined)
	}
	if len(candidates) == 0 {
		name, group, _ := strings.Cut(text, ".")
		return sqlstore.Resource{Group: group, Name: name}, false, nil
	}
	for _, candidate := range candidates {
		o := i.object
		o.Resource = candidate
		switch _, err := inspect.At(ctx, i.reader, o, 0); {
		case err == nil || errors.Is(err, inspect.ErrAbsent):
			return candidate, true, nil
		case !errors.Is(err, inspect.ErrUnknown):
			return found, true, err
		}
	}
	return candidates[0], true, nil
}

func called(text string, all []builtin.Names) []sqlstore.Resource {
	name, group, grouped := strings.Cut(strings.ToLower(text), ".")
	groups := []string{group, versionPrefix.ReplaceAllString(group, "")}
	var found []sqlstore.Resource
	for _, n := range all {
		if (n.Plural == name || n.Singular == name || slices.Contains(n.ShortNames, name)) && (!grouped || slices.Contains(groups, n.Group)) {
			found = append(found, sqlstore.Resource{Group: n.Stored.Group, Name: n.Stored.Resource})
		}
	}
	return found
}

// defined returns the names of custom resources. Of a definition that can't be decrypted, the plural is known.
func (i *inspector) defined(ctx context.Context) (all []builtin.Names, err error) {
	err = inspect.Live(ctx, i.reader, definitions, func(row *dialect.LogRow) error {
		plural, group, _ := strings.Cut(row.Name, ".")
		names := builtin.Names{Group: group, Plural: plural, Stored: crd.Stored(schema.GroupResource{Group: group, Resource: plural})}
		if value, err := decrypt(ctx, i.keys, definitions, row.Key, row.Value); err == nil {
			var definition apiextensionsv1.CustomResourceDefinition
			if err := json.Unmarshal(value, &definition); err != nil {
				return fmt.Errorf("customresourcedefinitions.apiextensions.k8s.io %s: %w", row.Name, err)
			}
			given := definition.Spec.Names
			names.Singular, names.ShortNames = given.Singular, append(given.ShortNames, strings.ToLower(given.Kind))
		}
		all = append(all, names)
		return nil
	})
	return all, err
}
