package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/klog/v2"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/server/builtin"
	"github.com/sqube/sqube/server/crd"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/inspect"
)

// outdated are the objects of a resource that are stored in one version, while a server would store them in another.
type outdated struct {
	resource    schema.GroupResource // as clients call it
	stored, now string
	objects     int64
}

// printOutdated prints which objects are stored in another version than the one in which a server with the default flags stores them,
// and what to do about it. It prints nothing if there are none. A definition that can't be read is a finding of the check, not an
// error here.
func (c *check) printOutdated(ctx context.Context, out io.Writer, reader dialect.Reader, checked inspect.Checked) error {
	klog.SetLogger(logr.Discard()) // the libraries log for servers
	built, err := builtin.New(func(made generic.StorageDecorator) generic.StorageDecorator { return made })
	if err != nil {
		return err
	}
	custom, err := c.customVersions(ctx, reader, checked)
	if err != nil {
		return err
	}
	var found []outdated
	for kind, objects := range checked.Stored {
		o := outdated{resource: schema.GroupResource{Group: kind.Group, Resource: kind.Name}, objects: objects}
		gv, err := schema.ParseGroupVersion(kind.APIVersion)
		if err != nil {
			continue // not one of an API
		}
		o.stored = gv.Version
		if definition, ok := custom[kind.Resource]; ok {
			o.resource.Resource, o.now = definition.plural, definition.version
		} else if version, ok := built.StorageVersion(o.resource, gv.WithKind(kind.Kind)); ok {
			o.now = version.Version
		}
		if o.now != "" && o.now != o.stored {
			found = append(found, o)
		}
	}
	if len(found) == 0 {
		return nil
	}
	slices.SortFunc(found, func(a, b outdated) int {
		return cmp.Or(cmp.Compare(a.resource.String(), b.resource.String()), cmp.Compare(a.stored, b.stored))
	})
	return describe(out, found)
}

func describe(out io.Writer, found []outdated) error {
	table := newTable(out, "OBJECTS", "RESOURCE", "STORED AS", "NOW")
	for _, o := range found {
		table.row(fmt.Sprint(o.objects), o.resource.String(), o.stored, o.now)
	}
	if err := table.end(); err != nil {
		return err
	}
	fmt.Fprint(out, "Any version can be read. To have the server rewrite these objects in the background:\n\nkubectl create -f - <<'END'\n")
	var last schema.GroupResource
	for _, o := range found {
		if o.resource == last { // stored in two old versions
			continue
		}
		last = o.resource
		fmt.Fprintf(out, `---
apiVersion: storagemigration.k8s.io/v1
kind: StorageVersionMigration
metadata: {generateName: %q}
spec: {resource: {group: %q, resource: %q}}
`, o.resource.String()+"-", o.resource.Group, o.resource.Resource)
	}
	_, err := fmt.Fprint(out, "END\n\n")
	return err
}

// customVersion is the plural name of a custom resource and its storage version.
type customVersion struct{ plural, version string }

// customVersions returns the storage versions of the custom resources that have objects, by where the objects are stored.
func (c *check) customVersions(ctx context.Context, reader dialect.Reader, checked inspect.Checked) (map[sqlstore.Resource]customVersion, error) {
	stored := map[sqlstore.Resource]bool{}
	for kind := range checked.Stored {
		stored[kind.Resource] = true
	}
	decode, versions := c.decode(ctx), map[sqlstore.Resource]customVersion{}
	err := inspect.Live(ctx, reader, definitions, func(row *dialect.LogRow) error {
		value, err := decode(definitions, row.Key, row.Value)
		if err != nil {
			return nil
		}
		var d apiextensionsv1.CustomResourceDefinition
		if err := json.Unmarshal(value, &d); err != nil {
			return nil
		}
		at := crd.Stored(schema.GroupResource{Group: d.Spec.Group, Resource: d.Spec.Names.Plural})
		resource := sqlstore.Resource{Group: at.Group, Name: at.Resource}
		if !stored[resource] {
			return nil
		}
		for _, version := range d.Spec.Versions {
			if version.Storage {
				versions[resource] = customVersion{d.Spec.Names.Plural, version.Name}
			}
		}
		return nil
	})
	return versions, err
}
