package writelimits

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	rbacinformers "k8s.io/client-go/informers/rbac/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage"
)

// Limiter knows the limits of a cluster.
type Limiter struct {
	store *sqlstore.Store
	rbac  rbacinformers.Interface
	stale atomic.Bool // all has to be made again
	all   atomic.Pointer[[]binding]
	mu    sync.Mutex // held to make all
	known []cache.InformerSynced
}

// binding binds subjects to a limit.
type binding struct {
	bound
	namespace string // of service accounts that name none
	subjects  []rbacv1.Subject
}

// New returns a limiter that follows the roles and bindings of informers.
func New(store *sqlstore.Store, rbac rbacinformers.Interface) (*Limiter, error) {
	l := &Limiter{store: store, rbac: rbac}
	l.stale.Store(true)
	changed := func(any) { l.stale.Store(true) }
	handler := cache.ResourceEventHandlerFuncs{AddFunc: changed, UpdateFunc: func(_, o any) { changed(o) }, DeleteFunc: changed}
	for _, informer := range []cache.SharedIndexInformer{rbac.ClusterRoles().Informer(), rbac.ClusterRoleBindings().Informer(), rbac.RoleBindings().Informer()} {
		registered, err := informer.AddEventHandler(handler)
		if err != nil {
			return nil, err
		}
		l.known = append(l.known, registered.HasSynced)
	}
	return l, nil
}

// Any reports whether there is any limit, or it is not known yet.
func (l *Limiter) Any() bool { return len(l.bindings()) > 0 || !l.ready() }

// ready reports whether all limits are known.
func (l *Limiter) ready() bool {
	return !slices.ContainsFunc(l.known, func(synced cache.InformerSynced) bool { return !synced() })
}

// bindings returns all bindings to limits.
func (l *Limiter) bindings() []binding {
	if all := l.all.Load(); all != nil && !l.stale.Load() {
		return *all
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stale.Store(false) // before they are read
	all := l.read()
	l.all.Store(&all)
	return all
}

func (l *Limiter) read() (all []binding) {
	roles, err := l.rbac.ClusterRoles().Lister().List(labels.Everything())
	limits := map[string]bound{}
	for _, role := range roles {
		text, ok := role.Annotations[Annotation]
		if !ok {
			continue
		}
		b := bound{role: role.Name}
		b.limits, b.invalid = parse(text)
		limits[role.Name] = b
	}
	if err != nil || len(limits) == 0 {
		return nil // an informer's lister does not fail
	}
	add := func(ref rbacv1.RoleRef, namespace string, subjects []rbacv1.Subject) {
		if b, ok := limits[ref.Name]; ok && ref.Kind == "ClusterRole" {
			b.namespace = namespace
			all = append(all, binding{b, namespace, subjects})
		}
	}
	everywhere, _ := l.rbac.ClusterRoleBindings().Lister().List(labels.Everything())
	for _, b := range everywhere {
		add(b.RoleRef, "", b.Subjects)
	}
	within, _ := l.rbac.RoleBindings().Lister().List(labels.Everything())
	for _, b := range within {
		add(b.RoleRef, b.Namespace, b.Subjects)
	}
	return all
}

// of returns the limits of a user. Members of system:masters have none, since no role bounds what they may.
func (l *Limiter) of(u user.Info) (found []*bound) {
	if slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) {
		return nil
	}
	all := l.bindings()
	for i := range all {
		b := &all[i]
		if slices.ContainsFunc(b.subjects, func(s rbacv1.Subject) bool { return b.names(s, u) }) {
			found = append(found, &b.bound)
		}
	}
	return found
}

// names reports whether a subject of the binding is a user.
func (b *binding) names(s rbacv1.Subject, u user.Info) bool {
	switch s.Kind {
	case rbacv1.UserKind:
		return s.Name == u.GetName()
	case rbacv1.GroupKind:
		return slices.Contains(u.GetGroups(), s.Name)
	case rbacv1.ServiceAccountKind:
		namespace := s.Namespace
		if namespace == "" {
			namespace = b.namespace
		}
		return namespace != "" && serviceaccount.MatchesUsername(namespace, s.Name, u.GetName())
	}
	return false
}

const (
	// counted is how long a write counts.
	counted = time.Hour
	// slice is how exactly it is known when it was.
	slice = time.Minute
	// tries is how often a count is written that others write at the same time.
	tries = 100
)

// tally is how much a user has written: a row of sqlstore.Written.
type tally struct {
	User  string          `json:"user"`
	Since map[int64]int64 `json:"since"` // the number of writes by the slice of time in which they were
}

// count counts a write of a user, and returns an API error if it is one too many. In a transaction, the count is committed with the
// write; else, before it. All servers of a database have the same count.
func (l *Limiter) count(ctx context.Context, r *Request, hourly []*bound) error {
	key := url.PathEscape(r.User.GetName())
	for range tries {
		found, _, err := l.store.Get(ctx, sqlstore.Written, key)
		if err != nil {
			return apistorage.ClientError(err)
		}
		now := time.Now()
		t := tally{User: r.User.GetName(), Since: map[int64]int64{}}
		if found != nil {
			if err := json.Unmarshal(found.Value, &t); err != nil {
				klog.ErrorS(err, "The count of what a user has written can't be read, and begins again", "user", r.User.GetName())
			}
		}
		total := t.drop(now)
		for _, b := range hourly {
			if total >= b.limits.ObjectsPerHour {
				return r.refuse(b, "it allows %d writes of objects in an hour, and there were as many: try again later, or ask somebody else", b.limits.ObjectsPerHour)
			}
		}
		t.Since[now.Unix()/int64(slice/time.Second)]++
		value, err := json.Marshal(t)
		if err != nil {
			return apierrors.NewInternalError(err)
		}
		w := sqlstore.Internal(sqlstore.Written, key, found, value)
		w.ExpiresAt = now.Add(counted + slice).UnixMilli()
		if _, err = l.store.Write(ctx, w); !errors.Is(err, sqlstore.ErrConflict) {
			return apistorage.ClientError(err)
		}
	}
	return apierrors.NewTooManyRequests("too many writes of yours are counted at the same time", 1)
}

// drop forgets what is longer ago than counted, and returns how much is left.
func (t *tally) drop(now time.Time) (total int64) {
	if t.Since == nil {
		t.Since = map[int64]int64{}
	}
	for at, n := range t.Since {
		if now.Sub(time.Unix((at+1)*int64(slice/time.Second), 0)) > counted {
			delete(t.Since, at)
			continue
		}
		total += n
	}
	return total
}
