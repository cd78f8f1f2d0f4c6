package changes

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// rights remembers for one reader which objects a user may get.
type rights struct {
	authorizer authorizer.Authorizer
	user       user.Info
	decided    map[object]bool
	since      time.Time // of the oldest decision
}

// object names an object, or with the name "" all objects of a resource in a namespace.
type object struct {
	schema.GroupResource
	namespace, name string
}

const (
	// remembered is how long a watch remembers decisions.
	remembered = 10 * time.Second
	// maxDecisions limits how many are remembered.
	maxDecisions = 10000
)

func (l *Log) rightsOf(u user.Info) *rights {
	return &rights{authorizer: l.Authorizer, user: u, decided: map[object]bool{}, since: time.Now()}
}

// refresh forgets decisions that are too old.
func (r *rights) refresh() {
	if time.Since(r.since) > remembered {
		clear(r.decided)
		r.since = time.Now()
	}
}

// mayGet reports whether the user may get an object, which need not exist.
func (r *rights) mayGet(ctx context.Context, resource schema.GroupResource, namespace, name string) (bool, error) {
	if resource.Group == "" && resource.Resource == "namespaces" {
		namespace = name // as in requests
	}
	allowed, err := r.decide(ctx, object{resource, namespace, ""})
	if err == nil && !allowed {
		allowed, err = r.decide(ctx, object{resource, namespace, name})
	}
	return allowed, err
}

func (r *rights) decide(ctx context.Context, o object) (bool, error) {
	if allowed, known := r.decided[o]; known {
		return allowed, nil
	}
	decision, _, err := r.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: r.user, Verb: "get", Namespace: o.namespace, APIGroup: o.Group, APIVersion: "*", Resource: o.Resource, Name: o.name, ResourceRequest: true,
	})
	// An error beside a decision is that of a rule that could not be read. The others decide, as for requests.
	allowed := decision == authorizer.DecisionAllow
	if err != nil && ctx.Err() != nil {
		return false, fmt.Errorf("authorizing: %w", context.Cause(ctx))
	}
	if len(r.decided) >= maxDecisions {
		clear(r.decided)
	}
	r.decided[o] = allowed
	return allowed, nil
}
