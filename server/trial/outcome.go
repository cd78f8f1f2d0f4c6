package trial

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json" // keeps all digits of integers

	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/sqlstore/history"
)

// outcome is what happened in one copy from the change on.
type outcome struct {
	webhooks *webhooks
	begin    time.Time
	end      time.Time
	user     string // who made the change
	nodes    int    // that were simulated
	objects  int
	served   served
	lives    map[key]*life
	events   []*life
	// versions calls a function with the versions of an object, the oldest first, from the one before the change on.
	versions func(l *life, yield func(w *write, object map[string]any)) error
}

// served is what a copy's server knows of kinds.
type served interface {
	ResourceOf(schema.GroupKind) (resource schema.GroupResource, namespaced, ok bool)
	KindOf(schema.GroupResource) (schema.GroupVersionKind, bool)
	Definition(schema.GroupResource) (name string, custom bool)
	Hidden(context.Context, schema.GroupResource) *changes.Hidden
}

// key names an object.
type key struct {
	schema.GroupResource
	namespace, name string
}

// life is what became of an object.
type life struct {
	key
	existed, exists bool
	uid             types.UID
	before, after   []byte // JSON; after is the last version of an object that is gone
	removed         []byte // the last version of the one before, if another has its name now
	writes          []write
}

// write is a change of an object.
type write struct {
	at       time.Time
	revision int64
	done     string // create, update or delete
	by       string // see author
	user     bool   // the user of the trial
	uid      types.UID
	entry    *changes.Entry
}

// mostPassing is of how many objects that came and went the content is read, of those whose names are alike.
const mostPassing = 20

// collect returns what has happened since a revision.
func collect(ctx context.Context, log *changes.Log, revision int64, out *outcome) error {
	out.lives, out.served = map[key]*life{}, log.Served
	events := map[key]*life{}
	err := log.All(ctx, &changes.Selection{Query: history.Query{After: revision, Lazy: true}}, func(e *changes.Entry) error {
		k := key{schema.GroupResource{Group: e.Group, Resource: e.Resource}, e.Namespace, e.Name}
		lives := out.lives
		switch k.GroupResource {
		case leases:
			return nil
		case eventsResource:
			lives = events
		}
		l := lives[k]
		if l == nil {
			l = &life{key: k, existed: e.Operation != "create"}
			lives[k] = l
		}
		l.exists, l.uid = e.Operation != "delete", types.UID(e.UID)
		l.writes = append(l.writes, write{
			at: time.UnixMilli(e.WrittenAt), revision: e.ID, done: string(e.Operation), by: author(e.User, e.ImpersonatedUser),
			user: e.User == out.user, uid: types.UID(e.UID), entry: e,
		})
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the changes of the copy: %w", err)
	}
	passing := map[key]int{}
	for _, lives := range []map[key]*life{out.lives, events} {
		for k, l := range lives {
			if !l.existed && !l.exists {
				if passing[k.alike()]++; passing[k.alike()] > mostPassing {
					continue
				}
			}
			if err := l.read(ctx, log); err != nil {
				return err
			}
		}
	}
	for _, l := range events { // those that have expired meanwhile are among them
		if l.after != nil {
			out.events = append(out.events, l)
		}
	}
	out.versions = func(l *life, yield func(*write, map[string]any)) error { return l.versions(ctx, log, yield) }
	return nil
}

// read reads how the object was and is.
func (l *life) read(ctx context.Context, log *changes.Log) error {
	first, last := l.writes[0].entry, l.writes[len(l.writes)-1].entry
	for _, e := range []*changes.Entry{first, last} {
		if err := log.Read(ctx, e); err != nil {
			return fmt.Errorf("read %s: %w", l.key, err)
		}
	}
	l.before, l.after = first.Before, last.After
	if !l.exists {
		l.after = last.Before
		return nil
	}
	for i := len(l.writes) - 1; i >= 0; i-- {
		if e := l.writes[i].entry; l.writes[i].done == "delete" {
			err := log.Read(ctx, e)
			l.removed = e.Before
			return err
		}
	}
	return nil
}

func (l *life) versions(ctx context.Context, log *changes.Log, yield func(*write, map[string]any)) error {
	for i := range min(len(l.writes), mostWrites) {
		e := l.writes[i].entry
		if err := log.Read(ctx, e); err != nil {
			return fmt.Errorf("read %s: %w", l.key, err)
		}
		yield(&l.writes[i], decode(e.After))
	}
	return nil
}

// decode returns an object; nil for none, and for what can't be read.
func decode(text []byte) map[string]any {
	var object map[string]any
	if len(text) == 0 || json.Unmarshal(text, &object) != nil {
		return nil
	}
	return object
}

// by returns who changed the object, each once.
func (l *life) by() (all []string) {
	for i := range l.writes {
		all = appendNew(all, l.writes[i].by)
	}
	return all
}

// byUser reports whether the user of the trial changed the object.
func (l *life) byUser() bool {
	for i := range l.writes {
		if l.writes[i].user {
			return true
		}
	}
	return false
}

func (k key) String() string {
	if k.namespace == "" {
		return k.GroupResource.String() + " " + k.name
	}
	return k.GroupResource.String() + " " + k.namespace + "/" + k.name
}

// alike is what the keys have in common of objects that differ in generated parts of their names, such as the Jobs of a CronJob.
func (k key) alike() key {
	name := k.name
	if k.GroupResource == eventsResource {
		name = name[:max(0, strings.LastIndexByte(name, '.'))] // what it is about
	}
	return key{k.GroupResource, k.namespace, withoutCounts(name)}
}

// author returns a short name of who changed something: deployment-controller.
func author(user, impersonated string) string {
	switch {
	case strings.HasPrefix(user, "system:node:"):
		return "kubelet"
	case user == "system:apiserver":
		return "kube-apiserver"
	}
	name := strings.TrimPrefix(strings.TrimPrefix(user, "system:serviceaccount:kube-system:"), "system:")
	return changes.Author(name, impersonated)
}

var (
	random = regexp.MustCompile(`-?[bcdfghjklmnpqrstvwxz2456789]{5}$`) // as generateName adds it
	counts = regexp.MustCompile(`[0-9]{3,}`)
)

// withoutCounts returns what names of the same kind of objects have in common, such as those of a CronJob's Jobs and of their Pods.
func withoutCounts(name string) string {
	return counts.ReplaceAllString(random.ReplaceAllString(name, ""), "0")
}

func appendNew[T comparable](list []T, one T) []T {
	for _, other := range list {
		if other == one {
			return list
		}
	}
	return append(list, one)
}
