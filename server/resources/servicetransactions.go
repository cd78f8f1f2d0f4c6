package resources

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	networkingclient "k8s.io/client-go/kubernetes/typed/networking/v1"
	api "k8s.io/kubernetes/pkg/apis/core"
	servicestore "k8s.io/kubernetes/pkg/registry/core/service/storage"

	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage"
)

// Addresses and node ports of Services are allocated outside of the transaction that writes a Service, so that nobody else gets them while
// it is open. They are released at its end: those of a refused transaction that it has allocated, those of a committed one that it no longer
// uses. Its dry run allocates none. Addresses that no Service has are released after a minute as leaked, so the commit requires that those of
// its Services are still allocated.

// allocateInTransactions has the hooks of the storage of Services finish at the end of the transaction that a request is part of.
func allocateInTransactions(store *genericregistry.Store, addresses networkingclient.IPAddressesGetter) {
	beginCreate, beginUpdate, afterDelete := store.BeginCreate, store.BeginUpdate, store.AfterDelete
	store.BeginCreate = func(ctx context.Context, service runtime.Object, options *metav1.CreateOptions) (genericregistry.FinishFunc, error) {
		t := sqlstore.TransactionFrom(ctx)
		if t != nil && t.DryRun {
			options = &metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
		}
		finish, err := beginCreate(ctx, service, options)
		if t == nil || err != nil {
			return finish, err
		}
		return allocated(ctx, t, addresses, service, nil, finish)
	}
	store.BeginUpdate = func(ctx context.Context, service, old runtime.Object, options *metav1.UpdateOptions) (genericregistry.FinishFunc, error) {
		t := sqlstore.TransactionFrom(ctx)
		if t != nil && t.DryRun {
			options = &metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}
		}
		finish, err := beginUpdate(ctx, service, old, options)
		if t == nil || err != nil {
			return finish, err
		}
		return allocated(ctx, t, addresses, service, old, finish)
	}
	store.AfterDelete = func(service runtime.Object, options *metav1.DeleteOptions) {
		t, gathered := transactionOf(service)
		switch {
		case !gathered:
			afterDelete(service, options)
		case t != nil && !t.DryRun: // else it has ended, and nothing was deleted
			service = service.DeepCopyObject()
			t.AtEnd(func(outcome sqlstore.Outcome) {
				if outcome == sqlstore.Committed {
					afterDelete(service, options)
				}
			})
		}
	}
}

// allocated returns what is to be called at the end of the write of a Service in a transaction: finish, at the end of that. old is what the
// Service was, nil if it is created.
func allocated(ctx context.Context, t *sqlstore.Transaction, addresses networkingclient.IPAddressesGetter, service, old runtime.Object, finish genericregistry.FinishFunc) (genericregistry.FinishFunc, error) {
	if err := requireAddresses(ctx, t, addresses, service, old); err != nil {
		finish(ctx, false)
		return nil, err
	}
	return finishAtEnd(t, finish, old == nil), nil
}

// requireAddresses has the transaction require the addresses that a Service has got.
func requireAddresses(ctx context.Context, t *sqlstore.Transaction, addresses networkingclient.IPAddressesGetter, service, old runtime.Object) error {
	if t.DryRun || !addressObjects() {
		return nil
	}
	var had []string
	if before, updates := old.(*api.Service); updates {
		had = before.Spec.ClusterIPs
	}
	for _, ip := range service.(*api.Service).Spec.ClusterIPs {
		parsed := net.ParseIP(ip) // not None
		if parsed == nil || slices.Contains(had, ip) {
			continue
		}
		name := parsed.String()
		address, err := addresses.IPAddresses().Get(sqlstore.WithTransaction(ctx, nil), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		revision, err := strconv.ParseInt(address.ResourceVersion, 10, 64)
		if err == nil {
			err = t.Require(ipAddresses, name, revision)
		}
		if err != nil {
			return apistorage.ClientError(err)
		}
	}
	return nil
}

var ipAddresses = sqlstore.Resource{Group: "networking.k8s.io", Name: "ipaddresses"}

// finishAtEnd returns a function that calls finish at the end of a transaction if the write was gathered, and at once if it was refused.
// If it is not known what was committed, both what was allocated and what would be released stay allocated, until they are repaired.
func finishAtEnd(t *sqlstore.Transaction, finish genericregistry.FinishFunc, creates bool) genericregistry.FinishFunc {
	return func(ctx context.Context, gathered bool) {
		if !gathered {
			finish(ctx, false)
			return
		}
		ctx = context.WithoutCancel(ctx)
		t.AtEnd(func(outcome sqlstore.Outcome) {
			if outcome != sqlstore.Unknown || creates {
				finish(ctx, outcome == sqlstore.Committed || outcome == sqlstore.Unknown)
			}
		})
	}
}

// transactionOf returns the open transaction that has deleted an object, nil if it has ended, and whether there is or was one.
func transactionOf(deleted runtime.Object) (t *sqlstore.Transaction, gathered bool) {
	service, ok := deleted.(*api.Service)
	if !ok {
		return nil, false
	}
	revision, err := strconv.ParseInt(service.ResourceVersion, 10, 64)
	if err != nil || !sqlstore.IsProvisional(revision) {
		return nil, false
	}
	return sqlstore.TransactionOf(revision), true
}

// serviceStatus refuses what would release addresses before the end of a transaction: its store is not ours to change.
type serviceStatus struct{ *servicestore.StatusREST }

// Update implements rest.Updater.
func (s serviceStatus) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, force bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	if sqlstore.TransactionFrom(ctx) != nil {
		info = rest.WrapUpdatedObjectInfo(info, func(_ context.Context, updated, _ runtime.Object) (runtime.Object, error) {
			if service, ok := updated.(*api.Service); ok && service.DeletionTimestamp != nil && len(service.Finalizers) == 0 {
				return nil, apierrors.NewForbidden(api.Resource("services"), name, fmt.Errorf("an update of the status can't remove the last finalizer in a transaction: update the Service"))
			}
			return updated, nil
		})
	}
	return s.StatusREST.Update(ctx, name, info, create, update, force, options)
}
