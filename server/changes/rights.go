package changes

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sqube/sqube/sqlstore/apistorage"
)

// The rights to more than what happened to objects that a user may see are the verb get on these subresources of changes.
const (
	// former is for what was before an object of the same name. It must be held in all namespaces, perhaps only for the name of a namespace
	// or definition: who may do everything in a namespace does not get it with that.
	former = "former"
	// address is for the addresses of clients, in the namespace of the object.
	address = "address"
)

// rights remembers for one reader what a user may see.
type rights struct {
	log     *Log
	user    user.Info
	decided map[question]bool
	lives   map[object]life
	since   time.Time // of the oldest decision
}

// question is whether a user may do something with an object, or its subresource.
type question struct {
	verb string
	object
	subresource string
}

const (
	// remembered is how long a watch remembers decisions.
	remembered = 10 * time.Second
	// maxDecisions limits how many are remembered.
	maxDecisions = 10000
)

func (l *Log) rightsOf(u user.Info) *rights {
	return &rights{log: l, user: u, decided: map[question]bool{}, lives: map[object]life{}, since: time.Now()}
}

// refresh forgets decisions that are too old.
func (r *rights) refresh() {
	if time.Since(r.since) > remembered {
		clear(r.decided)
		clear(r.lives)
		r.since = time.Now()
	}
}

// sees reports whether the user may see a change of an object, with that uid, that made a revision. named says that the user has named the
// object: then it is enough to be allowed to get it. Who may only get or list by name sees changes of the object that now has the name.
func (r *rights) sees(ctx context.Context, o object, uid string, revision int64, named bool) (bool, error) {
	verbs := []string{"list"}
	if named {
		verbs = append(verbs, "get")
	}
	within := o.within()
	everywhere, err := r.may(ctx, object{GroupResource: o.GroupResource}, verbs...)
	all := everywhere
	if err == nil && !all && within != "" {
		all, err = r.may(ctx, object{o.GroupResource, within, ""}, verbs...)
	}
	byName := false
	if err == nil && !all {
		byName, err = r.mayByName(ctx, object{o.GroupResource, within, o.name})
	}
	if err != nil || !all && !byName {
		return false, err
	}
	if name, custom := r.log.Served.Definition(o.GroupResource); custom {
		if lived, err := r.inLife(ctx, object{GroupResource: definitions, name: name}, revision); err != nil || !lived {
			return false, err
		}
	}
	if within != "" && !everywhere {
		if lived, err := r.inLife(ctx, object{GroupResource: namespaces, name: within}, revision); err != nil || !lived {
			return false, err
		}
	}
	if !byName {
		return true, nil
	}
	now, err := r.lifeOf(ctx, o)
	if err != nil || now.uid != "" && now.uid == uid {
		return err == nil, err
	}
	return r.mayFormer(ctx, within)
}

// within returns the namespace of an object, as in requests: a Namespace is in itself.
func (o object) within() string {
	if o.GroupResource == namespaces {
		return o.name
	}
	return o.namespace
}

// inLife reports whether a revision was in the life of a namespace or definition, or the user may see what was before.
func (r *rights) inLife(ctx context.Context, holder object, revision int64) (bool, error) {
	now, err := r.lifeOf(ctx, holder)
	if err != nil || now.includes(revision) {
		return err == nil, err
	}
	return r.mayFormer(ctx, holder.name)
}

func (r *rights) lifeOf(ctx context.Context, o object) (life, error) {
	if known, ok := r.lives[o]; ok {
		return known, nil
	}
	found, err := r.log.lifeOf(ctx, o, 0)
	if err != nil {
		return life{}, err
	}
	if len(r.lives) >= maxDecisions {
		clear(r.lives)
	}
	r.lives[o] = found
	return found, nil
}

// mayByName reports whether the user may get or list an object, but not all those of its resource in the namespace.
func (r *rights) mayByName(ctx context.Context, o object) (bool, error) {
	for _, verb := range []string{"list", "get"} {
		if one, err := r.may(ctx, o, verb); err != nil || !one {
			if err != nil {
				return false, err
			}
			continue
		}
		if all, err := r.may(ctx, object{o.GroupResource, o.namespace, ""}, verb); err != nil || !all {
			return err == nil, err
		}
	}
	return false, nil
}

// mayGet reports whether the user may get an object that they see.
func (r *rights) mayGet(ctx context.Context, o object) (bool, error) {
	all, err := r.may(ctx, object{o.GroupResource, o.within(), ""}, "get")
	if err != nil || all {
		return all, err
	}
	return r.may(ctx, object{o.GroupResource, o.within(), o.name}, "get")
}

// mayFormer reports whether the user may see what was before the namespace or definition of a name.
func (r *rights) mayFormer(ctx context.Context, name string) (bool, error) {
	return r.ask(ctx, question{"get", object{changesResource, "", name}, former})
}

// mayAddress reports whether the user may see from which addresses objects in a namespace were changed; "" for objects without one.
func (r *rights) mayAddress(ctx context.Context, namespace string) (bool, error) {
	return r.ask(ctx, question{"get", object{changesResource, namespace, ""}, address})
}

var changesResource = schema.GroupResource{Group: GroupVersion.Group, Resource: Resource}

// may reports whether the user may do one of the verbs.
func (r *rights) may(ctx context.Context, o object, verbs ...string) (allowed bool, err error) {
	for _, verb := range verbs {
		if allowed, err = r.ask(ctx, question{verb, o, ""}); allowed || err != nil {
			return allowed, err
		}
	}
	return false, nil
}

func (r *rights) ask(ctx context.Context, q question) (bool, error) {
	if allowed, known := r.decided[q]; known {
		return allowed, nil
	}
	decision, _, err := r.log.Authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: r.user, Verb: q.verb, Namespace: q.namespace, APIGroup: q.Group, APIVersion: "*", Resource: q.Resource, Subresource: q.subresource, Name: q.name,
		ResourceRequest: true,
	})
	// An error beside a decision is that of a rule that could not be read. The others decide, as for requests.
	allowed := decision == authorizer.DecisionAllow
	if err != nil && ctx.Err() != nil {
		return false, fmt.Errorf("authorizing: %w", context.Cause(ctx))
	}
	if len(r.decided) >= maxDecisions {
		clear(r.decided)
	}
	r.decided[q] = allowed
	return allowed, nil
}

// Guard is an [apistorage.Guard]: what a request reads at a resourceVersion of before is bounded like changes.
func (l *Log) Guard(ctx context.Context, p apistorage.Past) error {
	u, known := request.UserFrom(ctx)
	info, isRequest := request.RequestInfoFrom(ctx)
	if !known || !isRequest {
		return nil
	}
	r, o := l.rightsOf(u), object{p.Resource, p.Namespace, p.Name}
	within := o.within()
	asked := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
	if name, custom := l.Served.Definition(p.Resource); custom {
		if err := r.reaches(ctx, object{GroupResource: definitions, name: name}, name, p.First); err != nil {
			return apistorage.ClientError(err)
		}
	}
	if within == "" && p.Name == "" {
		return nil
	}
	everywhere, err := r.may(ctx, object{GroupResource: asked}, info.Verb)
	if err != nil || everywhere {
		return apistorage.ClientError(err)
	}
	if within != "" {
		if err := r.reaches(ctx, object{GroupResource: namespaces, name: within}, within, p.First); err != nil {
			return apistorage.ClientError(err)
		}
	}
	if p.Name == "" || p.Resource == namespaces {
		return nil
	}
	if all, err := r.may(ctx, object{asked, within, ""}, info.Verb); err != nil || all && within != "" {
		return apistorage.ClientError(err)
	}
	return apistorage.ClientError(r.reaches(ctx, o, within, p.First))
}

// reaches returns an error if what was at a revision, and is read from there on, was before the life of an object. name is what the right to
// that is for.
func (r *rights) reaches(ctx context.Context, of object, name string, first int64) error {
	now, err := r.log.lifeOf(ctx, of, first)
	if err != nil || now.includes(first) {
		return err
	}
	if now.uid == "" { // nor was there one then
		if unchanged, err := r.log.unchanged(ctx, of, first); err != nil || unchanged {
			return err
		}
	}
	if allowed, err := r.mayFormer(ctx, name); err != nil || allowed {
		return err
	}
	since := "it does not exist now"
	if now.uid != "" {
		since = fmt.Sprintf("it exists since resourceVersion %d", now.from)
	}
	right := fmt.Sprintf("to get %s/%s in the API group %s", Resource, former, GroupVersion.Group)
	if of.GroupResource == namespaces {
		right = "the same right in all namespaces, or " + right
	}
	return apierrors.NewForbidden(of.GroupResource, of.name, fmt.Errorf("%s, and to read what was before takes %s", since, right))
}
