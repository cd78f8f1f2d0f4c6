package changes

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/storetest"
	"github.com/sqube/sqube/test/engines"
	"github.com/sqube/sqube/test/harness"
)

// served has no definitions.
type served struct{ Served }

func (served) Definition(schema.GroupResource) (string, bool) { return "", false }

// TestRights lets users see changes of all objects that they may list, of those that they may get if they name them, and of the object that
// now has a name that they have been given. It asks once for each right.
func TestRights(t *testing.T) {
	may := map[string]bool{
		"list pods /": true, "list configmaps shop/": true, "get configmaps shop/": true, "get secrets shop/": true, "get secrets shop/door": true,
		"get services shop/mine": true, "get nodes /mine": true, "get changes/former /shop": true,
	}
	asked := map[string]int{}
	decide := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		resource := a.GetResource()
		if a.GetSubresource() != "" {
			resource += "/" + a.GetSubresource()
		}
		question := a.GetVerb() + " " + resource + " " + a.GetNamespace() + "/" + a.GetName()
		asked[question]++
		if may[question] {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	})
	for _, formerly := range []bool{false, true} {
		may["get changes/former /shop"] = formerly
		r := (&Log{Authorizer: decide, Served: served{}}).rightsOf(&user.DefaultInfo{Name: "jane"})
		of := func(resource, namespace, name string) object {
			return object{schema.GroupResource{Resource: resource}, namespace, name}
		}
		r.lives = map[object]life{
			of("namespaces", "", "shop"): {"s", 10}, of("namespaces", "", "gone"): {},
			of("services", "shop", "mine"): {"m", 20}, of("nodes", "", "mine"): {"n", 5},
		}
		for _, test := range []struct {
			object
			uid      string
			revision int64
			named    bool
			want     bool
		}{
			{of("pods", "shop", "a"), "a", 3, false, true},
			{of("pods", "gone", "a"), "a", 3, false, true},
			{of("configmaps", "shop", "a"), "a", 10, false, true},
			{of("configmaps", "shop", "a"), "a", 9, false, formerly},
			{of("configmaps", "gone", "a"), "a", 11, false, false},
			{of("secrets", "shop", "door"), "a", 11, false, false}, // a right to get it by its name is part of that to get all
			{of("secrets", "shop", "door"), "a", 11, true, true},
			{of("secrets", "shop", "door"), "a", 9, true, formerly},
			{of("services", "shop", "mine"), "m", 20, false, true},
			{of("services", "shop", "mine"), "other", 15, false, formerly},
			{of("services", "shop", "other"), "m", 20, true, false},
			{of("nodes", "", "mine"), "n", 5, false, true},
			{of("nodes", "", "mine"), "former", 3, true, false},
			{of("namespaces", "", "shop"), "s", 10, false, false},
		} {
			clear(asked)
			for range 2 {
				got, err := r.sees(t.Context(), test.object, test.uid, test.revision, test.named)
				if err != nil || got != test.want {
					t.Errorf("%+v with the right to former lives %v: %v, %v", test, formerly, got, err)
				}
			}
			for question, times := range asked {
				if times > 1 {
					t.Errorf("%+v: it asks %d times whether jane may %s", test, times, question)
				}
			}
		}
	}
}

// TestPaths selects changed fields by themselves, by what is above them, and by what was added or removed with them.
func TestPaths(t *testing.T) {
	changed := []string{".spec.template.spec.containers[name=web].image", ".metadata.labels"}
	for path, want := range map[string]bool{
		".spec": true, ".spec.template.spec.containers": true, `.spec.template.spec.containers[name\=web].image`: true, ".spec.temp": false,
		".metadata.labels.app": true, ".metadata.labelsX": false, ".status": false,
	} {
		selector, err := fields.ParseSelector("field=" + path)
		harness.Must(t, err)
		s, err := Select(selector, time.Now())
		if err != nil || s.matchesPaths(changed) != want {
			t.Errorf("%s: want %v, %v", path, want, err)
		}
	}
}

// TestLifeWithoutItsCreation bounds the life of a namespace, the history of which has been purged, by the second of its creation.
func TestLifeWithoutItsCreation(t *testing.T) {
	now := time.Now().Add(-time.Hour).Truncate(time.Second) // purging looks at the real clock
	var clock atomic.Int64
	clock.Store(now.UnixMilli())
	s := storetest.Open(t, engines.SQLite, sqlstore.Options{History: time.Hour, CompactInterval: time.Hour, Now: func() time.Time { return time.UnixMilli(clock.Load()) }})
	l := &Log{Store: s, Transformer: func(schema.GroupResource) value.Transformer { return identity.NewEncryptCheckTransformer() }}
	write := func(resource, uid string, previous *sqlstore.Record) *sqlstore.Record {
		w := &sqlstore.Write{
			Operation: "create", Resource: sqlstore.Resource{Name: resource}, Key: "shop", Name: "shop", UID: uid, Previous: previous, Labels: "{}", Fields: "{}",
			Value: fmt.Appendf(nil, `{"metadata":{"uid":%q,"creationTimestamp":%q}}`, uid, now.UTC().Format(time.RFC3339)),
		}
		if previous != nil {
			w.Operation = "update"
		}
		revision, err := s.Write(t.Context(), w)
		harness.Must(t, err)
		return &sqlstore.Record{Revision: revision, Key: "shop", Labels: "{}", Fields: "{}", Value: w.Value}
	}
	former := write("others", "a", nil)
	clock.Add(900)
	made := write("namespaces", "s", nil)
	within := write("others", "a", former)
	clock.Add(100)
	later := write("others", "a", within)
	shop := object{namespaces, "", "shop"}
	from := func() int64 {
		found, err := l.lifeOf(t.Context(), shop, 0)
		harness.Must(t, err)
		return found.from
	}
	if from() != made.Revision {
		t.Errorf("it begins with %d, want %d", from(), made.Revision)
	}
	changed := write("namespaces", "s", made)
	_, err := s.Purge(t.Context(), sqlstore.Resource{Name: "namespaces"}, "shop", sqlstore.Author{})
	harness.Must(t, err)
	write("namespaces", "s", changed)
	harness.Must(t, s.Compact(t.Context(), changed.Revision))
	if from() != made.Revision {
		t.Errorf("it is forgotten that it begins with %d: %d", made.Revision, from())
	}
	l.lives.known = nil
	if from() != later.Revision {
		t.Errorf("with its creation purged, it begins with %d, want %d", from(), later.Revision)
	}

	// What does not exist now has nothing to hide since it has not changed.
	l.Authorizer = authorizerfactory.NewAlwaysDenyAuthorizer()
	gone := write("gone", "g", nil)
	_, err = s.Write(t.Context(), &sqlstore.Write{Operation: "delete", Resource: sqlstore.Resource{Name: "gone"}, Key: "shop", Name: "shop", Previous: gone, Labels: "{}", Fields: "{}"})
	harness.Must(t, err)
	for resource, lasts := range map[string]bool{"gone": false, "never": true} {
		r, o := l.rightsOf(&user.DefaultInfo{Name: "jane"}), object{schema.GroupResource{Resource: resource}, "", "shop"}
		if err := r.reaches(t.Context(), o, "shop", gone.Revision+2); err != nil {
			t.Errorf("reading %s since it does not exist: %v", resource, err)
		}
		if err := r.reaches(t.Context(), o, "shop", gone.Revision); lasts != (err == nil) || !lasts && !apierrors.IsForbidden(err) {
			t.Errorf("reading %s of before: %v", resource, err)
		}
	}
}
