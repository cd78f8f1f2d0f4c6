package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/server/codecs"
	"github.com/sqube/sqube/server/handlers"
	"github.com/sqube/sqube/server/transactions"
)

// allOrNothing is the parameter with which the deletion of a collection deletes all its objects together, or none.
const allOrNothing = "allOrNothing"

const (
	// maxDeleteOptions is how large the body of such a request can be.
	maxDeleteOptions = 64 << 10
	// maxDeleted is how large the list of the objects can be that a dry run would delete. Without a dry run, the transaction is the limit.
	maxDeleted = 64 << 20
)

// withAllOrNothing serves deletions of collections with the parameter allOrNothing=true in one transaction. The handler is upstream's: what it
// deletes is gathered, and committed at its end.
func (s *Server) withAllOrNothing(api *handlers.API) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			info, ok := request.RequestInfoFrom(r.Context())
			if !ok || info.Verb != "deletecollection" || !r.URL.Query().Has(allOrNothing) {
				next.ServeHTTP(w, r)
				return
			}
			of := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
			asked, err := strconv.ParseBool(r.URL.Query().Get(allOrNothing))
			switch {
			case err != nil:
				codecs.WriteError(w, r, apierrors.NewBadRequest(fmt.Sprintf("%s must be true or false, not %q", allOrNothing, r.URL.Query().Get(allOrNothing))))
			case !asked:
				next.ServeHTTP(w, r)
			case !s.options.Transactions.Serve:
				codecs.WriteError(w, r, apierrors.NewBadRequest(allOrNothing+" takes a transaction, and this server has none (--transactions)"))
			case info.APIGroup == changes.GroupVersion.Group, !api.Serves(of.WithVersion(info.APIVersion).GroupVersion(), info.Resource) && !s.crd.Defines(of):
				codecs.WriteError(w, r, apierrors.NewBadRequest(fmt.Sprintf("%s is only for objects that this server stores, not for %s", allOrNothing, of)))
			default:
				s.deleteTogether(w, r, of, next)
			}
		})
	}
}

// deleteTogether deletes a collection with the handler in one transaction, and answers with a Status that names the transaction.
func (s *Server) deleteTogether(w http.ResponseWriter, r *http.Request, of schema.GroupResource, handler http.Handler) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxDeleteOptions))
	if err != nil {
		codecs.WriteError(w, r, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("with %s, the body can have %d bytes: %v", allOrNothing, maxDeleteOptions, err)))
		return
	}
	made := &deletedTogether{most: s.options.Transactions.MaxOperations}
	run := func(ctx context.Context) error {
		made.reset()
		again := r.Clone(ctx)
		again.Body, again.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		again.Header.Set("Accept", "application/json")
		again.Header.Del("Accept-Encoding")
		handler.ServeHTTP(made, again)
		return made.failure()
	}
	status := metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess, Details: &metav1.StatusDetails{Group: of.Group, Kind: of.Resource}}
	if isDryRun(r, body) {
		err = run(r.Context())
		status.Message = fmt.Sprintf("%d %s would be deleted", made.objects, of)
	} else if committed, failed := s.history.transactions.Together(r.Context(), "deletecollection-", run); failed != nil {
		err = failed
	} else if status.Message = fmt.Sprintf("%d %s are deleted", made.objects, of); committed.Writes > 0 {
		status.ResourceVersion = strconv.FormatInt(committed.Revision, 10)
		status.Message += " by the transaction " + committed.Name
		status.Details.Causes = []metav1.StatusCause{{Type: "Transaction", Message: committed.Name}}
	}
	if err != nil {
		codecs.WriteError(w, r, err)
		return
	}
	responsewriters.WriteObjectNegotiated(codecs.Serving(), negotiation.DefaultEndpointRestrictions, schema.GroupVersion{Version: "v1"}, w, r, http.StatusOK, &status, false)
}

// isDryRun reports whether a deletion is a dry run. One that can't be read is none: the handler refuses it.
func isDryRun(r *http.Request, body []byte) bool {
	if len(body) == 0 {
		return len(r.URL.Query()["dryRun"]) > 0
	}
	options, kind := &metav1.DeleteOptions{}, schema.GroupVersionKind{Version: "v1", Kind: "DeleteOptions"}
	_, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, &kind, options)
	return err == nil && len(options.DryRun) > 0
}

// deletedTogether keeps what a handler answers.
type deletedTogether struct {
	most    int // how many objects can be deleted
	header  http.Header
	code    int
	body    bytes.Buffer
	objects int
}

func (d *deletedTogether) reset() {
	d.header, d.code, d.objects = http.Header{}, 0, 0
	d.body.Reset()
}

// Header implements http.ResponseWriter.
func (d *deletedTogether) Header() http.Header { return d.header }

// WriteHeader implements http.ResponseWriter.
func (d *deletedTogether) WriteHeader(code int) { d.code = cmp.Or(d.code, code) }

// Write implements http.ResponseWriter.
func (d *deletedTogether) Write(p []byte) (int, error) {
	d.WriteHeader(http.StatusOK)
	if d.body.Len() <= maxDeleted {
		d.body.Write(p)
	}
	return len(p), nil
}

// failure returns the error that the answer is, nil if it is a list of the objects, which it counts.
func (d *deletedTogether) failure() error {
	if d.code >= http.StatusBadRequest {
		err := transactions.FailureOf(d.code, d.body.Bytes())
		err.ErrStatus.Message = "nothing was deleted: " + err.ErrStatus.Message
		return err
	}
	var list struct{ Items []struct{} }
	if err := json.Unmarshal(d.body.Bytes(), &list); err != nil && d.body.Len() <= maxDeleted {
		return apierrors.NewInternalError(fmt.Errorf("the objects that were deleted: %w", err))
	}
	if d.objects = len(list.Items); d.objects > d.most || d.body.Len() > maxDeleted {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("nothing was deleted: more than %d objects are selected; delete fewer, or without %s", d.most, allOrNothing))
	}
	return nil
}
