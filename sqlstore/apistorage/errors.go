package apistorage

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/storage"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
)

// retryAfterSeconds is what clients are told when the database fails.
const retryAfterSeconds = 1

// errDatastore is what clients hear of a failure of the database that trying again does not mend.
var errDatastore = errors.New("the datastore failed; the server's log says how")

// interpret turns an error of the log into what a client may see. This is the one place that does; nil stays nil, and an
// error that has a reason stays as it is. What the database's driver says stays in the server's log, since it names the
// database, its host and user, and the statement.
func interpret(err error) error {
	switch {
	case err == nil, hasReason(err):
		return err
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return apierrors.NewTimeoutError("the datastore did not answer in time", retryAfterSeconds)
	case errors.Is(err, dialect.ErrFull):
		return unavailable("the datastore's disk is full: reads go on, and writes will when there is room again")
	case errors.Is(err, dialect.ErrUnavailable):
		return unavailable("the datastore is unavailable, try again")
	case errors.Is(err, sqlstore.ErrClosed):
		return unavailable("the server is shutting down")
	}
	return apierrors.NewInternalError(errDatastore)
}

// hasReason says whether clients can be told the error: it is an answer of the API or an error of package storage, of which
// the registry makes one.
func hasReason(err error) bool {
	var status apierrors.APIStatus
	var stored *storage.StorageError
	var internal storage.InternalError
	return errors.As(err, &status) || errors.As(err, &stored) || errors.As(err, &internal)
}

// ensureReason makes an error without a reason one of the server. Deferred, it covers all errors that a function returns: what
// is wrong with a request has a reason where it is found.
func ensureReason(err *error) {
	if *err != nil && !hasReason(*err) {
		*err = apierrors.NewInternalError(*err)
	}
}

// badRequest returns err with the reason BadRequest.
func badRequest(err error) error { return refusal{apierrors.NewBadRequest(err.Error()), err} }

type refusal struct {
	*apierrors.StatusError
	cause error
}

// Unwrap returns the cause.
func (r refusal) Unwrap() error { return r.cause }

func unavailable(message string) error {
	status := apierrors.NewServiceUnavailable(message)
	status.ErrStatus.Details = apierrors.NewTimeoutError("", retryAfterSeconds).ErrStatus.Details
	return status
}
