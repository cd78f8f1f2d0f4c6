package fleet

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	rbacclient "k8s.io/client-go/kubernetes/typed/rbac/v1"

	"github.com/sqube/sqube/server"
	"github.com/sqube/sqube/server/fleet/v1alpha1"
)

// administratorsBinding is the ClusterRoleBinding inside a cluster that has its administrators.
const administratorsBinding = "sqube:administrators"

// started returns the part of a spec that takes effect when a cluster wakes up.
func started(o *v1alpha1.Cluster) v1alpha1.ClusterSpec {
	s := *o.Spec.DeepCopy()
	s.From, s.Sleep, s.Administrators, s.TTL, s.KeepDeleted, s.Anonymous = nil, v1alpha1.Sleep{}, nil, nil, nil, false
	memory := s.Limits.Memory
	s.Limits = v1alpha1.Limits{Memory: memory}
	return s
}

// applyTo applies a changed spec to a cluster that is awake. Most of it needs a restart, which clients see like that of any server.
func (f *Fleet) applyTo(ctx context.Context, c *cluster, r *running, o *v1alpha1.Cluster) {
	if !apiequality.Semantic.DeepEqual(r.spec, started(o)) {
		go func() {
			c.stop(ctx)
			f.look(c.name)
		}()
		return
	}
	if r.server == nil {
		return
	}
	if err := f.bindAdministrators(ctx, r.server, o); err != nil {
		logFailure("binding the administrators of a cluster failed", c.name, err)
	}
	if err := r.bound(ctx, o.Spec.Limits); err != nil {
		logFailure("applying the limits of a cluster failed", c.name, err)
	}
}

// bindAdministrators makes the administrators of a cluster cluster-admin in it.
func (f *Fleet) bindAdministrators(ctx context.Context, s *server.Server, o *v1alpha1.Cluster) error {
	client, err := rbacclient.NewForConfig(s.Loopback(fleetUser, "system:masters"))
	if err != nil {
		return err
	}
	bindings := client.ClusterRoleBindings()
	wanted := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: administratorsBinding},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
	}
	for _, subject := range o.Spec.Administrators {
		wanted.Subjects = append(wanted.Subjects, inside(subject))
	}
	found, err := bindings.Get(ctx, administratorsBinding, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && len(wanted.Subjects) == 0:
		return nil
	case apierrors.IsNotFound(err):
		_, err = bindings.Create(ctx, wanted, metav1.CreateOptions{FieldManager: fieldOwner})
	case err == nil && apiequality.Semantic.DeepEqual(found.Subjects, wanted.Subjects) && found.RoleRef == wanted.RoleRef:
		return nil
	case err == nil && found.RoleRef != wanted.RoleRef || err == nil && len(wanted.Subjects) == 0:
		if err = bindings.Delete(ctx, administratorsBinding, metav1.DeleteOptions{}); err == nil && len(wanted.Subjects) > 0 {
			_, err = bindings.Create(ctx, wanted, metav1.CreateOptions{FieldManager: fieldOwner})
		}
	case err == nil:
		found.Subjects = wanted.Subjects
		_, err = bindings.Update(ctx, found, metav1.UpdateOptions{FieldManager: fieldOwner})
	}
	if err != nil {
		return fmt.Errorf("binding the administrators: %w", err)
	}
	return nil
}

// inside returns a subject of the host as a subject of a cluster.
func inside(s rbacv1.Subject) rbacv1.Subject {
	if s.Kind == rbacv1.ServiceAccountKind {
		s = rbacv1.Subject{Kind: rbacv1.UserKind, Name: "system:serviceaccount:" + s.Namespace + ":" + s.Name}
	}
	return rbacv1.Subject{Kind: s.Kind, APIGroup: rbacv1.GroupName, Name: server.NameInside(s.Name)}
}
