// Package writelimits limits what users write, by an annotation of the ClusterRoles to which they are bound.
//
//	ClusterRole with the annotation ◄── ClusterRoleBinding, RoleBinding ──► user, groups, service account
//
// A limit takes away, where a role gives. So who is bound by one can't write what would lift it: see never.
package writelimits

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/sqlstore"
)

// Annotation is that of a ClusterRole which limits those who are bound to it. Its value is the JSON of Limits.
const Annotation = "history.sqube.io/write-limits"

// Limits are what the annotation says.
type Limits struct {
	// ObjectsPerHour is how many writes of objects there may be in an hour; 0 for any number.
	ObjectsPerHour int64 `json:"objectsPerHour,omitempty"`
	// Resources may be written, such as configmaps and deployments.apps, with their subresources; if empty, all but those that never may.
	Resources []string `json:"resources,omitempty"`
	// ConfirmWithin refuses writes outside of transactions that must be confirmed within this time or a shorter one.
	ConfirmWithin string `json:"confirmWithin,omitempty"`
	// SelfConfirm lets those who are bound confirm transactions themselves, or by their being healthy.
	SelfConfirm bool `json:"selfConfirm,omitempty"`

	within time.Duration
}

// parse reads an annotation.
func parse(text string) (*Limits, error) {
	l := &Limits{}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(l); err != nil {
		return nil, err
	}
	if l.ObjectsPerHour < 0 {
		return nil, fmt.Errorf("objectsPerHour is %d", l.ObjectsPerHour)
	}
	if l.ConfirmWithin != "" {
		var err error
		if l.within, err = time.ParseDuration(l.ConfirmWithin); err != nil || l.within <= 0 {
			return nil, fmt.Errorf("confirmWithin is %q, want a duration such as 10m", l.ConfirmWithin)
		}
	}
	return l, nil
}

// bound is a limit as it applies to some users.
type bound struct {
	role      string
	namespace string // in which it applies, "" for everywhere
	limits    *Limits
	invalid   error // why the annotation can't be read; then nothing may be written
}

// Request is a request for a resource.
type Request struct {
	User user.Info
	// Impersonator is who impersonates User, nil if nobody does.
	Impersonator user.Info
	Verb         string
	Group        string
	Resource     string
	Subresource  string
	Namespace    string
	Name         string
	DryRun       bool
}

// connects are the subresources that reach into Pods and Nodes, by any method.
var connects = []string{"exec", "attach", "portforward", "proxy"}

// never are the resources that nobody who has limits writes, since they lend the rights of others, or change these.
var never = []string{"secrets", "serviceaccounts/token", "*.rbac.authorization.k8s.io", "*.certificates.k8s.io"}

// asks reports whether a request changes nothing.
func (r *Request) asks() bool {
	if slices.Contains(connects, r.Subresource) {
		return false
	}
	switch r.Verb {
	case "get", "list", "watch", "head", "options":
		return true
	}
	return r.Verb == "create" && slices.Contains(changes.Reviews, r.Group)
}

// sends reports whether the writes of a request are requests of their own, of the same user.
func (r *Request) sends() bool {
	return r.Group == changes.GroupVersion.Group && r.Verb == "create" && !r.confirms()
}

// confirms reports whether a request confirms a transaction.
func (r *Request) confirms() bool {
	return r.Group == changes.GroupVersion.Group && r.Resource == "transactions" && r.Subresource == "confirm"
}

// names are those under which a limit can list what is written.
func (r *Request) names() []string {
	of := func(resource string) string { return schema.GroupResource{Group: r.Group, Resource: resource}.String() }
	if r.Subresource == "" {
		return []string{of(r.Resource)}
	}
	whole := of(r.Resource + "/" + r.Subresource)
	if slices.Contains(connects, r.Subresource) {
		return []string{whole}
	}
	return []string{whole, of(r.Resource)}
}

// Check returns an API error if a limit does not allow a request. ctx has its transaction.
func (l *Limiter) Check(ctx context.Context, r *Request) error {
	if !l.Any() || r.asks() {
		return nil
	}
	if !l.ready() && !slices.Contains(r.User.GetGroups(), user.SystemPrivilegedGroup) {
		return apierrors.NewTooManyRequests("the server has just started and does not know yet who may write what: try again", 1)
	}
	if r.Impersonator != nil {
		if own := l.of(r.Impersonator); len(own) > 0 {
			return r.refuse(own[0], "to impersonate others would lift it: write as %s", r.Impersonator.GetName())
		}
	}
	if r.sends() {
		return nil
	}
	var hourly []*bound
	for _, b := range l.of(r.User) {
		if b.namespace != "" && b.namespace != r.Namespace && !r.confirms() {
			continue
		}
		if b.invalid != nil {
			return r.refuse(b, "its annotation %s can't be read, so that nothing may be written: %v", Annotation, b.invalid)
		}
		if err := r.check(ctx, b); err != nil {
			return err
		}
		if b.limits.ObjectsPerHour > 0 {
			hourly = append(hourly, b)
		}
	}
	if len(hourly) == 0 || r.DryRun || r.confirms() {
		return nil
	}
	return l.count(ctx, r, hourly)
}

// check returns an API error if a limit does not allow a request, however much was written before.
func (r *Request) check(ctx context.Context, b *bound) error {
	names := r.names()
	if r.confirms() {
		if b.limits.within > 0 && !b.limits.SelfConfirm {
			return r.refuse(b, "somebody else must confirm transactions")
		}
		return nil
	}
	if slices.Contains(never, names[0]) || slices.Contains(never, names[len(names)-1]) || slices.Contains(never, "*."+r.Group) {
		return r.refuse(b, "writing %s could lift it", names[0])
	}
	if len(b.limits.Resources) > 0 && !slices.ContainsFunc(names, func(name string) bool { return slices.Contains(b.limits.Resources, name) }) {
		return r.refuse(b, "it allows writes of %s only", strings.Join(b.limits.Resources, ", "))
	}
	if r.Verb == "deletecollection" {
		return r.refuse(b, "it does not allow to delete collections: delete the objects one by one, or in a transaction")
	}
	if b.limits.within == 0 {
		return nil
	}
	var c sqlstore.Confirmation
	if t := sqlstore.TransactionFrom(ctx); t != nil {
		c = t.Confirmation
	}
	switch {
	case c.Within == 0 || c.Within > b.limits.within:
		return r.refuse(b, "it allows writes only in a transaction that must be confirmed within %v: use sqube apply --confirm-within %s, or spec.confirmWithin of a Transaction", b.limits.within, b.limits.ConfirmWithin)
	case c.UnlessHealthy && !b.limits.SelfConfirm:
		return r.refuse(b, "somebody else must confirm its transactions: unlessHealthy is not allowed")
	}
	return nil
}

// refuse returns the API error for a request that a limit does not allow.
func (r *Request) refuse(b *bound, format string, args ...any) error {
	resource := schema.GroupResource{Group: r.Group, Resource: r.Resource}
	return apierrors.NewForbidden(resource, r.Name, fmt.Errorf("the ClusterRole %s limits what you write: %s", b.role, fmt.Sprintf(format, args...)))
}
