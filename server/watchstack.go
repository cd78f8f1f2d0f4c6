package server

import (
	"context"
	"fmt"
	"net/http"
	"runtime/debug"

	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/request"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/klog/v2"
)

// A watch lives for minutes, and would keep the frames of all filters on its stack. So the filters between awaitWatch and beginWatch run in
// another goroutine, and return once the watch has begun.

type watchKey struct{}

// filteredWatch is a watch whose filters run in another goroutine.
type filteredWatch struct {
	serve    chan func() // what is left to do
	filtered chan any    // what the filters panicked with, or nil
}

// awaitWatch calls next in another goroutine, and itself serves the watch that beginWatch passes to it. The filters between the two must
// not end anything that the watch needs.
func awaitWatch(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// What is logged about a request covers the whole request.
		if info, ok := request.RequestInfoFrom(r.Context()); !ok || info.Verb != "watch" || klog.V(3).Enabled() {
			next.ServeHTTP(w, r)
			return
		}
		watch := &filteredWatch{make(chan func()), make(chan any, 1)}
		go watch.filter(next, w, r.WithContext(context.WithValue(r.Context(), watchKey{}, watch)))
		select {
		case serve := <-watch.serve:
			defer func() { repanic(<-watch.filtered) }()
			serve()
		case panicked := <-watch.filtered:
			repanic(panicked)
		}
	})
}

func (f *filteredWatch) filter(next http.Handler, w http.ResponseWriter, r *http.Request) {
	defer func() {
		panicked := recover()
		if panicked != nil && panicked != http.ErrAbortHandler {
			panicked = fmt.Sprintf("%v\n%s", panicked, debug.Stack())
		}
		f.filtered <- panicked
	}()
	next.ServeHTTP(w, r)
}

// repanic panics with what another goroutine recovered, unless that is nil.
func repanic(panicked any) {
	if panicked != nil {
		panic(panicked)
	}
}

// beginWatch passes a watch to awaitWatch, and returns when it has begun: it then takes no more seat of priority and fairness, but counts as
// a watch there.
func (s *Server) beginWatch(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		watch, ok := r.Context().Value(watchKey{}).(*filteredWatch)
		if !ok || s.outbound.traced || s.audited(r) {
			next.ServeHTTP(w, r) // spans and audit events cover the whole request
			return
		}
		begun, forget := utilflowcontrol.NewInitializationSignal(), utilflowcontrol.ForgetWatchFunc(nil)
		if s.fairness != nil {
			forget = s.fairness.RegisterWatch(r)
		}
		r = r.WithContext(utilflowcontrol.WithInitializationSignal(r.Context(), begun))
		watch.serve <- func() {
			defer begun.Signal()
			if forget != nil {
				defer forget()
			}
			next.ServeHTTP(w, r)
		}
		begun.Wait()
	})
}

// audited reports whether the request is recorded.
func (s *Server) audited(r *http.Request) bool {
	return s.audit.Backend != nil && s.audit.Policy != nil && audit.AuditContextFrom(r.Context()).Enabled()
}
