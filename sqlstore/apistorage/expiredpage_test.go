package apistorage_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/storetest"
	"github.com/sqube/sqube/test/engines"
)

// forgetful is a log that is compacted before the second page of a list at a revision is read.
type forgetful struct {
	dialect.Engine
	pages   int
	compact func() error
}

// Query implements dialect.Engine.
func (f *forgetful) Query(ctx context.Context, statement string, args []any, row func(dialect.Row) error) error {
	if strings.Contains(statement, "AS whole") {
		if f.pages++; f.pages == 2 {
			if err := f.compact(); err != nil {
				return err
			}
		}
	}
	return f.Engine.Query(ctx, statement, args, row)
}

// TestListExpiresWhileRead continues a list whose revision is compacted when 500 of the objects it asks for have been read. The
// client gets none of these, so the token in the error must begin before them.
func TestListExpiresWhileRead(t *testing.T) {
	log := &forgetful{Engine: storetest.OpenEngine(t, engines.SQLite(t))}
	var group []dialect.Write
	for i := range sqlstore.PageRecords + 100 {
		name := fmt.Sprintf("pod-%05d", i)
		group = append(group, dialect.Write{
			Operation: dialect.Create, Resource: "pods", Key: "ns/" + name, Namespace: "ns", Name: name, Labels: "{}", Fields: "{}",
			Value: fmt.Appendf(nil, `{"kind":"Pod","apiVersion":"example.apiserver.k8s.io/v1","metadata":{"name":"%s","namespace":"ns"}}`, name),
		})
	}
	if _, err := log.Commit(t.Context(), group); err != nil {
		t.Fatal(err)
	}
	store := storetest.Start(t, log, sqlstore.Options{CacheBytes: sqlstore.NoCache})
	f := newFixtureOn(t, store)
	f.Transformer = trimmed{}

	opts := storage.ListOptions{Recursive: true, Predicate: storage.Everything}
	opts.Predicate.Limit = 1
	first := &example.PodList{}
	if err := f.GetList(t.Context(), "/pods", opts, first); err != nil {
		t.Fatal(err)
	}
	newest, err := store.Write(t.Context(), &sqlstore.Write{
		Operation: dialect.Create, Resource: sqlstore.Resource{Name: "others"}, Key: "a", Name: "a", Labels: "{}", Fields: "{}", Value: []byte("{}"),
	})
	if err != nil {
		t.Fatal(err)
	}
	log.compact = func() error { return store.Compact(context.Background(), newest) }

	opts.Predicate.Limit, opts.Predicate.Continue = int64(len(group)), first.Continue
	err = f.GetList(t.Context(), "/pods", opts, &example.PodList{})
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsResourceExpired(err) {
		t.Fatalf("the next page: %v", err)
	}
	if log.pages != 2 {
		t.Errorf("%d pages were read", log.pages)
	}
	want, _, err := storage.DecodeContinue(first.Continue, "/pods/")
	if err != nil {
		t.Fatal(err)
	}
	if got, revision, err := storage.DecodeContinue(status.Status().Continue, "/pods/"); err != nil || got != want || revision >= 0 {
		t.Errorf("the token continues at %q, revision %d, %v; want %q and the newest revision", got, revision, err, want)
	}
}
