package apistorage

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/storage"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
)

// retryAfterSeconds is sent to clients when the database fails.
const retryAfterSeconds = 1

// reasonInsufficientStorage is the reason of a write that a limit of the store does not allow. Kubernetes has none for it.
const reasonInsufficientStorage metav1.StatusReason = "InsufficientStorage"

// errDatastore is what clients see of a database failure that a retry does not fix.
var errDatastore = errors.New("the datastore failed; see the server's log")

// ClientError turns an error of the store into one that a client may see. It is the only place that does. An error that has a
// reason is returned unchanged. The driver's message goes only to the server's log, because it names the database, its host and
// user, and the statement.
func ClientError(err error) error {
	var bound *sqlstore.BoundError
	switch {
	case err == nil, hasReason(err):
		return err
	case errors.As(err, &bound):
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusInsufficientStorage, Reason: reasonInsufficientStorage, Message: bound.Error(),
		}}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return apierrors.NewTimeoutError("the datastore did not answer in time", retryAfterSeconds)
	case errors.Is(err, sqlstore.ErrTransactionTooLarge):
		return apierrors.NewRequestEntityTooLargeError(err.Error())
	case errors.Is(err, sqlstore.ErrCompacted): // to a get; lists say more
		return apierrors.NewResourceExpired("the transaction reads a state that is no longer kept: without history, it can't stay open for longer than --retention")
	case errors.Is(err, dialect.ErrFull):
		return unavailable("the datastore's disk is full: reads still work, and writes will work once there is space again")
	case errors.Is(err, dialect.ErrMoved):
		return unavailable("a file of the datastore was deleted, moved or replaced, so what is written would be lost; the server's log names it and says what to do")
	case errors.Is(err, dialect.ErrUnavailable):
		return unavailable("the datastore is unavailable, try again")
	case errors.Is(err, sqlstore.ErrTransactionEnded):
		return apierrors.NewBadRequest(err.Error())
	case errors.Is(err, sqlstore.ErrClosed):
		return unavailable("the server is shutting down")
	}
	return apierrors.NewInternalError(errDatastore)
}

// hasReason reports whether clients may see the error: it is an API status, or an error of package storage, which the registry
// turns into one.
func hasReason(err error) bool {
	var status apierrors.APIStatus
	var stored *storage.StorageError
	var internal storage.InternalError
	return errors.As(err, &status) || errors.As(err, &stored) || errors.As(err, &internal)
}

// ensureReason turns an error without a reason into an internal error. Deferred, it covers everything a function returns. So a
// client's mistake must get its reason where it is detected.
func ensureReason(err *error) {
	if *err != nil && !hasReason(*err) {
		*err = apierrors.NewInternalError(*err)
	}
}

// afterCommit turns any error that follows a commit into an internal error: the write at key took effect, so the client made no
// mistake.
func afterCommit(err error, key string) error {
	if err == nil {
		return nil
	}
	return apierrors.NewInternalError(fmt.Errorf("key %q was written, but what was written can't be read: %w", key, err))
}

// badRequest returns err with the reason BadRequest.
func badRequest(err error) error { return refusal{apierrors.NewBadRequest(err.Error()), err} }

type refusal struct {
	*apierrors.StatusError
	cause error
}

func (r refusal) Unwrap() error { return r.cause }

func unavailable(message string) error {
	status := apierrors.NewServiceUnavailable(message)
	status.ErrStatus.Details = apierrors.NewTimeoutError("", retryAfterSeconds).ErrStatus.Details
	return status
}
