package transactions

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/sqlstore/apistorage"
)

// NewList implements rest.Lister.
func (*REST) NewList() runtime.Object { return &TransactionList{} }

// List implements rest.Lister: it returns the transactions that must be confirmed, or of which something was left when they were taken back.
// Users see their own ones, and all if they may confirm those of others.
func (r *REST) List(ctx context.Context, _ *internalversion.ListOptions) (runtime.Object, error) {
	all, err := r.waiting(ctx)
	if err != nil {
		return nil, apistorage.ClientError(err)
	}
	list := &TransactionList{Items: []Transaction{}}
	at, err := r.Store.Position(ctx)
	if err != nil {
		return nil, apistorage.ClientError(err)
	}
	list.ResourceVersion = fmt.Sprint(at.Revision)
	others, err := r.confirmsOthers(ctx)
	if err != nil {
		return nil, err
	}
	caller, _ := request.UserFrom(ctx)
	for _, w := range all {
		if !others && (caller == nil || caller.GetName() != w.User) {
			continue
		}
		found, err := r.record(ctx, w.Name)
		if err != nil {
			return nil, err
		}
		if found == nil {
			continue
		}
		l, err := loadedFrom(w.Name, found)
		if err != nil {
			return nil, err
		}
		t, err := l.transaction()
		if err != nil {
			return nil, err
		}
		list.Items = append(list.Items, *t)
	}
	return list, nil
}

var columns = []metav1.TableColumnDefinition{
	{Name: "Name", Type: "string", Format: "name", Description: "Its name."},
	{Name: "User", Type: "string", Description: "Who made it."},
	{Name: "Age", Type: "string", Description: "How long ago it was committed."},
	{Name: "Operations", Type: "integer", Description: "How many operations it has."},
	{Name: "State", Type: "string", Description: "Whether it was confirmed or taken back."},
	{Name: "Deadline", Type: "string", Description: "How long there is left to confirm it."},
	{Name: "Message", Type: "string", Priority: 1, Description: "Why it was taken back, or why it could not be."},
}

// ConvertToTable implements rest.TableConvertor.
func (*REST) ConvertToTable(_ context.Context, object, options runtime.Object) (*metav1.Table, error) {
	t := &metav1.Table{}
	if o, ok := options.(*metav1.TableOptions); !ok || !o.NoHeaders {
		t.ColumnDefinitions = columns
	}
	switch o := object.(type) {
	case *TransactionList:
		t.ListMeta = o.ListMeta
		for i := range o.Items {
			t.Rows = append(t.Rows, rowOf(&o.Items[i]))
		}
	case *Transaction:
		t.ResourceVersion = o.ResourceVersion
		t.Rows = append(t.Rows, rowOf(o))
	default:
		return nil, fmt.Errorf("%T is not a transaction", object)
	}
	return t, nil
}

func rowOf(t *Transaction) metav1.TableRow {
	s, left, age := &t.Status, changes.None, changes.None
	if s.State == AwaitsConfirmation {
		left = duration.HumanDuration(max(0, time.Until(s.Deadline.Time)))
	}
	if s.Time != nil {
		age = duration.HumanDuration(time.Since(s.Time.Time))
	}
	return metav1.TableRow{Object: runtime.RawExtension{Object: t}, Cells: []any{
		t.Name, s.User, age, int64(len(s.Operations)), cmp.Or(string(s.State), "Committed"), left, cmp.Or(s.Message, changes.None),
	}}
}
