package changes

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage"
	"github.com/sqube/sqube/sqlstore/fieldpath"
)

const (
	// maxFields is how many changed fields a change shows.
	maxFields = 100
	// maxValue is how many bytes a value may have, and maxValues all values of a change. Longer ones are cut.
	maxValue, maxValues = 1024, 16 << 10
)

// change returns an entry in the form of the API, with secret values or their sizes.
func (r *reader) change(ctx context.Context, e *Entry, secrets bool) (Change, error) {
	c := Change{
		TypeMeta: metav1.TypeMeta{APIVersion: GroupVersion.String(), Kind: "Change"},
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprint(e.ID), Namespace: e.Namespace, ResourceVersion: fmt.Sprint(e.ID), CreationTimestamp: metav1.NewTime(time.UnixMilli(e.WrittenAt)),
		},
		Object: Object{
			APIVersion: e.head.APIVersion, Kind: e.head.Kind, Resource: e.Resource, Namespace: e.Namespace, Name: e.Name, UID: types.UID(e.UID),
		},
		Operation: string(e.Operation), User: e.User, ImpersonatedUser: e.ImpersonatedUser, FieldManager: e.FieldManager,
		ChangedUnknown: e.Operation == "update" && e.Before == nil && e.Fields == nil, ValuesGivenUp: e.GivenUp || e.Fields != nil,
	}
	if isGap(e.Change) {
		return c, c.become(e)
	}
	c.Transaction, c.AuditID = sqlstore.SplitAuditID(e.AuditID)
	if source, _ := sqlstore.SplitMirroredID(e.AuditID); source != 0 {
		c.SourceRevision = fmt.Sprint(source)
	}
	if err := r.addSpan(ctx, &c, e.ID); err != nil {
		return c, err
	}
	if shown, err := r.rights.mayAddress(ctx, e.Namespace); err != nil {
		return c, err
	} else if shown {
		c.Address, c.CredentialID = e.Address, e.CredentialID
	}
	var hidden *Hidden
	if len(e.differences) > 0 {
		hidden = r.log.Served.Hidden(ctx, schema.GroupResource{Group: e.Group, Resource: e.Resource})
	}
	left := maxValues
	for i, d := range e.differences {
		if i == maxFields {
			c.MoreChanged = len(e.differences) - i
			break
		}
		f, err := fieldOf(d, hidden, secrets, &left)
		if err != nil {
			return c, err
		}
		c.Changed = append(c.Changed, f)
	}
	if e.Fields != nil {
		c.MoreChanged += e.Fields.More
	}
	var err error
	c.Owners, err = r.owners.of(ctx, e.ID, e.Namespace, e.head.Metadata.OwnerReferences)
	return c, err
}

// become makes the change that of a gap.
func (c *Change) become(e *Entry) error {
	c.Operation, c.Object, c.User, c.FieldManager, c.ChangedUnknown = gapOperation, Object{}, "", "", false
	c.Gap = &Gap{}
	if e.After == nil { // it is no longer kept
		return nil
	}
	err := json.Unmarshal(e.After, c.Gap)
	c.Object.Name = c.Gap.of()
	return err
}

// gapOperation is the operation of a change that is a gap.
const gapOperation = "gap"

// span is where a transaction is in the log: its record is the first row, and last the revision of the last one.
type span struct{ record, last int64 }

// addSpan says between which revisions the transaction of a change with a revision is, if that is known.
func (r *reader) addSpan(ctx context.Context, c *Change, revision int64) (err error) {
	if c.Transaction == "" {
		return nil
	}
	found, known := r.spans[c.Transaction]
	if !known || revision > found.last {
		if found.record, found.last, err = r.log.Store.RowsOf(ctx, c.Transaction); err != nil {
			return apistorage.ClientError(err)
		}
		r.spans[c.Transaction] = found
	}
	if found.record < revision && revision <= found.last { // else it is another one of that name
		c.TransactionBefore, c.TransactionAfter = fmt.Sprint(found.record-1), fmt.Sprint(found.last)
	}
	return nil
}

// fieldOf returns a difference in the form of the API. What its values take is taken off left.
func fieldOf(d fieldpath.Difference, hidden *Hidden, secrets bool, left *int) (f Field, err error) {
	f.Path = d.Path
	if of := hidden.Of(d.Path); of.Hides(d.Old) || of.Hides(d.New) {
		f.secret, f.oldSize, f.newSize = true, of.sizeOf(d.Old), of.sizeOf(d.New)
		if !secrets {
			f.hide()
			return f, nil
		}
	}
	if f.Old, f.OldBytes, err = jsonOf(d.Old, left); err == nil {
		f.New, f.NewBytes, err = jsonOf(d.New, left)
	}
	return f, err
}

// jsonOf returns the JSON of a value, or how it begins and its length. What it returns is taken off left.
func jsonOf(value any, left *int) (text *apiextensionsv1.JSON, cut *int, err error) {
	if value == nil {
		return nil, nil, nil
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, nil, err
	}
	if most := min(maxValue, *left); len(raw) > most {
		cut = ptr.To(len(raw))
		if raw, err = json.Marshal(strings.ToValidUTF8(string(raw[:most]), "")); err != nil {
			return nil, nil, err
		}
	}
	*left = max(*left-len(raw), 0)
	return &apiextensionsv1.JSON{Raw: raw}, cut, nil
}

// overhead is roughly how many bytes a change takes besides its objects or fields.
const overhead = 1000

// size is roughly how much memory the change takes.
func (c *Change) size() int {
	const fieldOverhead = 100
	size := overhead
	for _, f := range c.Changed {
		size += fieldOverhead + len(f.Path)
		for _, value := range []*apiextensionsv1.JSON{f.Old, f.New} {
			if value != nil {
				size += len(value.Raw)
			}
		}
	}
	return size
}
