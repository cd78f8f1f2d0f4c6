package reads

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/harness"
)

// manyObjects is enough for lists that the server reads from the database in two pages.
const manyObjects = 600

// testMany lists during writes. Each list is at one revision, and the same when read the other way at that revision.
func testMany(t *testing.T, c *cluster) {
	const space = "many"
	if _, err := c.typed.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: space}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	client := c.typed.CoreV1().ConfigMaps(space)
	object := func(i int) *corev1.ConfigMap {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("object-%04d", i), Labels: map[string]string{"even": fmt.Sprint(i%2 == 0), "rare": fmt.Sprint(i%400 == 0)}},
			Data:       map[string]string{"i": fmt.Sprint(i)},
		}
	}
	inParallel(t, manyObjects, func(ctx context.Context, i int) error {
		_, err := client.Create(ctx, object(i), metav1.CreateOptions{})
		return err
	})

	// Writers delete and create at random, so that pages shift all the time.
	ctx, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	defer writers.Wait()
	defer stop()
	for range 4 {
		writers.Go(func() {
			for ctx.Err() == nil {
				i := rand.IntN(manyObjects)
				err := client.Delete(ctx, object(i).Name, metav1.DeleteOptions{})
				if err == nil || apierrors.IsNotFound(err) {
					_, err = client.Create(ctx, object(i), metav1.CreateOptions{})
				}
				if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) && ctx.Err() == nil {
					t.Errorf("write: %v", err)
				}
			}
		})
	}

	base := "/api/v1/namespaces/" + space + "/configmaps?"
	for range 2 {
		for _, selector := range []string{"", "even=true", "rare=true", "even in (true,false),rare!=true"} {
			query := url.Values{"labelSelector": {selector}}
			list := c.get(t, base+query.Encode())
			checkList(t, list, selector)
			query.Set("resourceVersion", list.version(t))
			query.Set("resourceVersionMatch", "Exact")
			if err := differ(t, list, c.get(t, pretty(base+query.Encode()))); err != nil {
				t.Errorf("a list with selector %q during writes: %v", selector, err)
			}
		}
	}
	checkPages(t, c, base)
}

// checkList expects every object once, in order, except for those that a writer has currently deleted.
func checkList(t *testing.T, list answer, selector string) {
	t.Helper()
	var got metav1.PartialObjectMetadataList
	harness.Must(t, json.Unmarshal(list.body, &got))
	last := ""
	for _, item := range got.Items {
		if item.Name <= last {
			t.Errorf("with selector %q, %s comes after %s", selector, item.Name, last)
		}
		last = item.Name
	}
	if selector == "" && len(got.Items) < manyObjects-4 {
		t.Errorf("%d objects are listed, but at most 4 of %d are deleted at a time", len(got.Items), manyObjects)
	}
}

// checkPages reads pages during writes: together they are the list at the revision of the first.
func checkPages(t *testing.T, c *cluster, base string) {
	t.Helper()
	var items []string
	query := url.Values{"limit": {"170"}}
	revision := ""
	for {
		page := c.get(t, base+query.Encode())
		var list struct {
			Metadata metav1.ListMeta
			Items    []json.RawMessage
		}
		harness.Must(t, json.Unmarshal(page.body, &list))
		for _, item := range list.Items {
			items = append(items, string(item))
		}
		if revision == "" {
			revision = list.Metadata.ResourceVersion
		}
		if list.Metadata.ResourceVersion != revision {
			t.Errorf("a page is at revision %s, the first one at %s", list.Metadata.ResourceVersion, revision)
		}
		if list.Metadata.Continue == "" {
			break
		}
		query.Set("continue", list.Metadata.Continue)
	}
	whole := c.get(t, base+"resourceVersionMatch=Exact&resourceVersion="+revision)
	want := `"items":[` + strings.Join(items, ",") + "]}\n"
	_, got, _ := strings.Cut(string(whole.body), `"items":[`)
	if err := firstDifference([]byte(`"items":[`+got), []byte(want)); err != nil {
		t.Errorf("the pages together: %v", err)
	}
}

// inParallel calls do for 0 to n-1, several at a time, and fails the test if one of them fails.
func inParallel(t *testing.T, n int, do func(ctx context.Context, i int) error) {
	t.Helper()
	work := make(chan int)
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() {
			for i := range work {
				if err := do(t.Context(), i); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	workers.Wait()
}
