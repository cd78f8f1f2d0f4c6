package changes

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
)

// table implements rest.TableConvertor.
type table struct{}

const (
	// None is the cell of what a change does not have.
	None = "<none>"
	// TransactionColumn is the name of the column with the transaction of a change.
	TransactionColumn = "Transaction"
)

var columns = []metav1.TableColumnDefinition{
	{Name: "Revision", Type: "string", Format: "name", Description: "The resourceVersion that the change made, which is its name."},
	{Name: "Age", Type: "string", Description: "How long ago it was."},
	{Name: "Operation", Type: "string", Description: "create, update or delete, or gap for what a mirror has not seen."},
	{Name: "Object", Type: "string", Description: "The object's kind and name."},
	{Name: "User", Type: "string", Description: "Who changed it, and in whose name."},
	{Name: "Manager", Type: "string", Description: "The field manager, or the first part of the user agent."},
	{Name: "Changed", Type: "string", Description: "The fields that an update changed, the first ones in short."},
	{Name: "Time", Type: "string", Priority: 1, Description: "When it was, in UTC."},
	{Name: "Owner", Type: "string", Priority: 1, Description: "The last one in the chain of the object's owners."},
	{Name: "Address", Type: "string", Priority: 1, Description: "The address of the client."},
	{Name: "Audit ID", Type: "string", Priority: 1, Description: "The request in the audit log."},
	{Name: TransactionColumn, Type: "string", Priority: 1, Description: "The transaction that made the change with others."},
	{Name: "Values", Type: "string", Priority: 1, Description: "All fields that an update changed, with their values."},
}

// ConvertToTable implements rest.TableConvertor.
func (table) ConvertToTable(_ context.Context, object, options runtime.Object) (*metav1.Table, error) {
	t := &metav1.Table{}
	if o, ok := options.(*metav1.TableOptions); !ok || !o.NoHeaders {
		t.ColumnDefinitions = columns
	}
	switch o := object.(type) {
	case *ChangeList:
		t.ListMeta = o.ListMeta
		for i := range o.Items {
			t.Rows = append(t.Rows, rowOf(&o.Items[i]))
		}
	case *Change:
		t.ResourceVersion = o.ResourceVersion
		t.Rows = append(t.Rows, rowOf(o))
	default:
		return nil, fmt.Errorf("%T is not a change", object)
	}
	return t, nil
}

func rowOf(c *Change) metav1.TableRow {
	if slices.ContainsFunc(c.Changed, func(f Field) bool { return f.secret && !f.Hidden }) { // it was got by its name
		c = Copy(c)
		for i := range c.Changed {
			c.Changed[i].hide()
		}
	}
	if c.Gap != nil {
		return rowOfGap(c)
	}
	owner := None
	if n := len(c.Owners); n > 0 {
		owner = c.Owners[n-1].short()
	}
	return metav1.TableRow{Object: runtime.RawExtension{Object: c}, Cells: []any{
		c.Name, duration.HumanDuration(time.Since(c.CreationTimestamp.Time)), c.Operation, c.Object.short(), Author(c.User, c.ImpersonatedUser), c.FieldManager, c.short(),
		c.CreationTimestamp.UTC().Format(time.RFC3339), owner, cmp.Or(c.Address, None), cmp.Or(c.AuditID, None), cmp.Or(c.Transaction, None), c.values(len(c.Changed), maxValue),
	}}
}

// rowOfGap says what is missing, in the columns of a change.
func rowOfGap(c *Change) metav1.TableRow {
	of, text := c.Gap.of(), c.Gap.text()
	return metav1.TableRow{Object: runtime.RawExtension{Object: c}, Cells: []any{
		c.Name, duration.HumanDuration(time.Since(c.CreationTimestamp.Time)), c.Operation, of, None, None, text,
		c.CreationTimestamp.UTC().Format(time.RFC3339), None, None, None, None, text,
	}}
}

// of names the resources of a gap in short.
func (g *Gap) of() string {
	const shown = 2
	if n := len(g.Resources); n > shown {
		return fmt.Sprintf("%s and %d more", strings.Join(g.Resources[:shown], ", "), n-shown)
	}
	return strings.Join(g.Resources, ", ")
}

// text says what is missing.
func (g *Gap) text() string {
	when := fmt.Sprintf("from %s to %s", g.Since.UTC().Format(time.RFC3339), g.Until.UTC().Format(time.RFC3339))
	if g.Lost {
		return "not seen " + when + ": only the difference is known"
	}
	return "not followed " + when + ": what happened was told afterwards"
}

// Author returns who did something for people: a user, and in whose name, if that was another's.
func Author(user, impersonated string) string {
	if impersonated == "" {
		return user
	}
	return user + " as " + impersonated
}

// short returns the object's kind, with its group, and its name, as kubectl prints them.
func (o *Object) short() string {
	gv, _ := schema.ParseGroupVersion(o.APIVersion)
	kind := cmp.Or(strings.ToLower(o.Kind), o.Resource)
	if gv.Group != "" {
		kind += "." + gv.Group
	}
	return kind + "/" + o.Name
}

const (
	// shortFields is how many changed fields a row shows, and shortValue how many bytes of each value.
	shortFields, shortValue = 2, 24
)

func (c *Change) short() string {
	if c.ChangedUnknown {
		return "<unknown>"
	}
	return c.values(shortFields, shortValue)
}

// values returns the first changed fields with their values, each cut to that many bytes.
func (c *Change) values(most, bytes int) string {
	fields := slices.DeleteFunc(slices.Clone(c.Changed), func(f Field) bool { return f.Path == ".metadata.generation" }) // others say more
	var parts []string
	for i, f := range fields {
		if i == most {
			break
		}
		switch old, now := text(f.Old, f.OldBytes, bytes), text(f.New, f.NewBytes, bytes); {
		case old == "" && now == "": // they were given up
			parts = append(parts, f.Path)
		case old == "":
			parts = append(parts, f.Path+": + "+now)
		case now == "":
			parts = append(parts, f.Path+": - "+old)
		default:
			parts = append(parts, f.Path+": "+old+" → "+now)
		}
	}
	if more := len(fields) - len(parts) + c.MoreChanged; more > 0 {
		parts = append(parts, fmt.Sprintf("%d more", more))
	}
	return cmp.Or(strings.Join(parts, ", "), None)
}

// Sized stands for a value that is hidden.
func Sized(bytes int) string { return fmt.Sprintf("(%d bytes)", bytes) }

// text returns a value on one line, or its size if it is hidden; "" for none. Strings have no quotes, unless they are empty.
func text(value *apiextensionsv1.JSON, size *int, most int) string {
	switch {
	case value == nil && size == nil:
		return ""
	case value == nil:
		return Sized(*size)
	}
	raw := string(value.Raw)
	if len(raw) > 2 && raw[0] == '"' {
		raw = raw[1 : len(raw)-1]
	}
	if len(raw) > most {
		raw = strings.ToValidUTF8(raw[:most], "") + "…"
	}
	return raw
}
