package apistorage

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
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
	token, err := storage.EncodeContinue(next, w.full, revision)
	if err == nil && w.exactly && revision != newestRevision && w.store.KeepsHistory() {
		token, err = markExact(token)
	}
	return token, err
}

// A list is of an exact state if the client has named its revision, or continues such a list. It can be read as long as history is kept.
// The token of any other list expires as clients know it from kube-apiserver, and they count on that: what they continue would otherwise be
// up to a week old. Tokens of exact lists are marked in their JSON, in which readers of the other fields ignore it.
type exactMark struct {
	Exact bool `json:"exact"`
}

func markExact(token string) (string, error) {
	content, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return "", err
	}
	content = append(bytes.TrimSuffix(content, []byte("}")), `,"exact":true}`...)
	return base64.RawURLEncoding.EncodeToString(content), nil
}

// isExact reports whether a list at a revision, which may be that of a continue token, is of an exact state.
func isExact(token string, revision int64) bool {
	if token == "" {
		return revision != 0
	}
	var mark exactMark
	content, err := base64.RawURLEncoding.DecodeString(token)
	return err == nil && json.Unmarshal(content, &mark) == nil && mark.Exact
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
