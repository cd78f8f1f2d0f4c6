package apistorage

import (
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/storage"
)

// cursor is a position in a collection, in the order of the rows' keys: at the key from, or right after the key after. The zero
// value is the beginning.
//
// A continue token contains it as the full key at which the next page begins, together with the revision of the list. "Right
// after" is the key with a NUL appended: no other key sorts between the two.
type cursor struct{ from, after string }

// decodeCursor returns where the list described by opts begins, and the revision to read it at, or 0 for the newest. full is the
// key of the request.
func (s *Storage) decodeCursor(full string, opts storage.ListOptions) (at cursor, revision int64, err error) {
	revision, start, err := storage.ValidateListOptions(full, s.versioner, opts)
	if err != nil || start == "" {
		return at, revision, err
	}
	key, after := strings.CutSuffix(strings.TrimPrefix(start, s.prefix), "\x00")
	switch {
	case !storable(key):
		return at, 0, errInvalidCursor
	case after:
		at.after = key
	default:
		at.from = key
	}
	return at, revision, nil
}

var errInvalidCursor = apierrors.NewBadRequest("invalid continue token: " + storage.ErrGenericInvalidKey.Error())

// token returns the continue token of a walk to be continued at a cursor, at a revision or at newestRevision.
func (w *walk) token(at cursor, revision int64) (string, error) {
	next := w.prefix + at.from
	if at.after != "" {
		next = w.prefix + at.after + "\x00"
	}
	return storage.EncodeContinue(next, w.full, revision)
}

// newestRevision in a continue token means the newest revision at the time of its use.
const newestRevision = -1

// The messages of kube-apiserver for lists that reach too far back.
const (
	listExpired     = "The resourceVersion for the provided list is too old."
	continueExpired = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, " +
		"or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - " +
		"objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list."
)

// expired returns the error for a list at a revision that is no longer kept. A client that was reading pages gets a token to
// continue at the newest revision from where this list began: it gets nothing of what was read since.
func (w *walk) expired() error {
	status := apierrors.NewResourceExpired(listExpired)
	if w.opts.Predicate.Continue == "" {
		return status
	}
	token, err := w.token(w.start, newestRevision)
	if err != nil {
		return err
	}
	status.ErrStatus.Message, status.ErrStatus.ListMeta.Continue = continueExpired, token
	return status
}
