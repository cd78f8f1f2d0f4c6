package apistorage_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/storetest"
	"github.com/sqube/sqube/test/engines"
	"github.com/sqube/sqube/test/harness"
)

// TestListExpiresWhileRead continues a list whose revision is compacted when 500 of the objects it asks for have been read. The
// client gets none of these, so the token in the error must begin before them.
func TestListExpiresWhileRead(t *testing.T) {
	var store *sqlstore.Store
	var newest int64 // to compact up to before the second page at a revision is read
	pages := 0
	log := &storetest.Intercepted{Engine: storetest.OpenEngine(t, engines.SQLite(t)), BeforeQuery: func(_ context.Context, statement string) error {
		if strings.Contains(statement, "AS whole") {
			pages++
			if pages == 2 {
				return store.Compact(context.Background(), newest)
			}
		}
		return nil
	}}
	const pods = sqlstore.PageRecords + 100
	if _, err := log.Commit(t.Context(), createPods(pods)); err != nil {
		t.Fatal(err)
	}
	store = storetest.Start(t, log, sqlstore.Options{CacheBytes: sqlstore.NoCache})
	f := newFixtureOn(t, store)
	f.Transformer = trimmed{}

	opts := storage.ListOptions{Recursive: true, Predicate: storage.Everything}
	opts.Predicate.Limit = 1
	first := &example.PodList{}
	harness.Must(t, f.GetList(t.Context(), "/pods", opts, first))
	var err error
	newest, err = store.Write(t.Context(), &sqlstore.Write{
		Operation: dialect.Create, Resource: sqlstore.Resource{Name: "others"}, Key: "a", Name: "a", Labels: "{}", Fields: "{}", Value: []byte("{}"),
	})
	harness.Must(t, err)

	opts.Predicate.Limit, opts.Predicate.Continue = pods, first.Continue
	err = f.GetList(t.Context(), "/pods", opts, &example.PodList{})
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsResourceExpired(err) {
		t.Fatalf("the next page: %v", err)
	}
	if pages != 2 {
		t.Errorf("%d pages were read", pages)
	}
	want, _, err := storage.DecodeContinue(first.Continue, "/pods/")
	harness.Must(t, err)
	if got, revision, err := storage.DecodeContinue(status.Status().Continue, "/pods/"); err != nil || got != want || revision >= 0 {
		t.Errorf("the token continues at %q, revision %d, %v; want %q and the newest revision", got, revision, err, want)
	}
}
