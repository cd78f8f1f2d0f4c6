package apistorage

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3/metrics"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"github.com/sqube/sqube/sqlstore"
)

// A corrupt object is one that can't be decrypted or decoded. Unless the feature gate AllowUnsafeMalformedObjectDeletion is off, it may
// be deleted unread, and a list reports all corrupt objects (KEP-3926).

// untransformable is the error of an object that can't be decrypted.
func untransformable(r *sqlstore.Record, key string, err error) error {
	if utilfeature.DefaultFeatureGate.Enabled(features.AllowUnsafeMalformedObjectDeletion) {
		return storage.NewCorruptObjError(key, fmt.Errorf("data from the storage is not transformable revision=%d: %w", r.Revision, err))
	}
	return storage.NewInternalError(fmt.Errorf("unable to transform key %q: %w", key, err))
}

// undecodable counts and returns the error of an object that can't be decoded.
func (s *Storage) undecodable(r *sqlstore.Record, key string, err error) error {
	metrics.RecordDecodeError(s.GroupResource)
	if utilfeature.DefaultFeatureGate.Enabled(features.AllowUnsafeMalformedObjectDeletion) {
		return storage.NewCorruptObjError(key, fmt.Errorf("object not decodable revision=%d: %w", r.Revision, err))
	}
	return apierrors.NewInternalError(fmt.Errorf("unable to decode key %q: %w", key, err))
}

// maxCorrupt is how many corrupt objects a list reports before it ends, as in kube-apiserver.
const maxCorrupt = 100

// corruptObjects collects those that a list finds.
type corruptObjects struct{ causes []metav1.StatusCause }

// add records the error of reading the object at key. It returns the error if the cause is not a corrupt object, and that of the list once
// it reports as many as it may.
func (c *corruptObjects) add(resource schema.GroupResource, key string, err error) error {
	if !storage.IsCorruptObject(err) {
		return err
	}
	c.causes = append(c.causes, metav1.StatusCause{Type: metav1.CauseTypeUnexpectedServerResponse, Field: key, Message: err.Error()})
	if len(c.causes) < maxCorrupt {
		return nil
	}
	full := c.err(resource)
	full.ErrStatus.Details.Causes = append(c.causes, metav1.StatusCause{Type: metav1.CauseTypeTooMany, Message: "too many errors, the list is truncated"})
	return full
}

// err returns the error of a list with corrupt objects.
func (c *corruptObjects) err(resource schema.GroupResource) *apierrors.StatusError {
	// Some clients see only the message: it has the first error.
	message := fmt.Sprintf("failed to read one or more %s from the storage: %s", resource, c.causes[0].Message)
	if more := len(c.causes) - 1; more > 0 {
		message += fmt.Sprintf(" (and %d more)", more)
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusInternalServerError,
		Reason:  metav1.StatusReasonStoreReadError,
		Message: message,
		Details: &metav1.StatusDetails{Group: resource.Group, Kind: resource.Resource, Name: "list", Causes: c.causes},
	}}
}
