package transactions

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage"
)

// uncommitted returns the error of a transaction whose commit has failed: it says whether something may have been written, and how to find out.
func uncommitted(name string, err error) error {
	failure := apistorage.ClientError(err)
	var known apierrors.APIStatus
	if !errors.As(failure, &known) {
		return failure
	}
	status := known.Status()
	if sqlstore.MayHaveHappened(err) {
		status.Message = fmt.Sprintf("the transaction %s may have been written: get it to see, or send it again under this name, under which it is written once at most: %s", name, status.Message)
	} else {
		status.Message = "nothing was written: " + status.Message
	}
	return &apierrors.StatusError{ErrStatus: status}
}
