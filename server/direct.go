package server

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/sqube/sqube/server/bootstrap"
	"github.com/sqube/sqube/sqlstore"
)

// directly returns bootstrap.Config.Store, nil if requests must be seen: by the audit log, or by admission, which only a new database
// can't have objects for.
func directly(b *base, s *security, a *apis) bootstrap.StoreFunc {
	select {
	case <-b.written.done:
		return nil
	default:
	}
	if s.audit.Backend != nil || b.options.Admission.Configured() {
		return nil
	}
	return func(ctx context.Context, object runtime.Object) (runtime.Object, error) {
		kinds, _, err := legacyscheme.Scheme.ObjectKinds(object)
		if err != nil {
			return nil, err
		}
		resource, _ := meta.UnsafeGuessKindToResource(kinds[0])
		creater, ok := a.resources.Storage(resource).(rest.Creater)
		if !ok {
			return nil, fmt.Errorf("%s can't be created", resource)
		}
		m, err := meta.Accessor(object)
		if err != nil {
			return nil, err
		}
		author, now := sqlstore.Author{User: user.APIServerUser}, metav1.NewTime(time.Now().UTC().Truncate(time.Second))
		managers := m.GetManagedFields()
		for i := range managers {
			managers[i].Time, author.FieldManager = &now, managers[i].Manager
		}
		m.SetManagedFields(managers)
		internal, err := legacyscheme.Scheme.ConvertToVersion(object, schema.GroupVersion{Group: resource.Group, Version: runtime.APIVersionInternal})
		if err != nil {
			return nil, err
		}
		ctx = request.WithUser(ctx, &user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}})
		ctx = request.WithRequestInfo(ctx, &request.RequestInfo{
			IsResourceRequest: true, Verb: "create", APIPrefix: "apis", APIGroup: resource.Group, APIVersion: resource.Version,
			Resource: resource.Resource, Namespace: m.GetNamespace(),
		})
		ctx = sqlstore.WithAuthor(request.WithNamespace(ctx, m.GetNamespace()), author)
		stored, err := creater.Create(ctx, internal, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		return legacyscheme.Scheme.ConvertToVersion(stored, resource.GroupVersion())
	}
}
