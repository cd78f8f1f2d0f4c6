package server

import (
	"context"
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/routine"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"

	"github.com/sqube/sqube/server/stack"
)

// A watch lives for minutes, and would keep the frames of all filters and handlers on its stack. So most of them run in other goroutines:
//
//   - Those between awaitWatch and watchtask.Whole return before the watch begins. What they do at its end, they leave to watchtask.AtEnd.
//   - Those between awaitServing and beginServing return once the watch has sent its initial state. The handlers that follow beginServing
//     return at once, and leave the rest to the request's routine.Task.

// awaitWatch calls next in another goroutine if the request may be a watch, and then serves the watch that watchtask.Whole left to it.
func awaitWatch(next http.Handler) http.Handler {
	return routine.WithRoutine(next, func(r *http.Request, _ *request.RequestInfo) bool {
		return strings.Contains(r.URL.RawQuery, "watch") || strings.Contains(r.URL.Path, "/watch/")
	})
}

func isWatch(r *http.Request) bool {
	info, ok := request.RequestInfoFrom(r.Context())
	return ok && info.Verb == "watch"
}

// begunKey is for the channel that passes a watch from beginServing to awaitServing.
type begunKey struct{}

// awaitServing calls next in another goroutine, and itself serves the watch that beginServing passes to it.
func awaitServing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isWatch(r) {
			next.ServeHTTP(w, r)
			return
		}
		begun := make(chan func())
		returned := stack.Elsewhere(func() { next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), begunKey{}, begun))) })
		select {
		case serve := <-begun:
			defer func() { stack.Repanic(<-returned) }()
			serve()
		case panicked := <-returned:
			stack.Repanic(panicked)
		}
	})
}

// beginServing passes a watch to awaitServing, and returns when its initial state has been sent: until then it takes a seat of priority and
// fairness. Until its end, it counts as a watch there.
func (s *Server) beginServing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		await, ok := r.Context().Value(begunKey{}).(chan func())
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		begun, forget := utilflowcontrol.NewInitializationSignal(), utilflowcontrol.ForgetWatchFunc(nil)
		if s.fairness != nil {
			forget = s.fairness.RegisterWatch(r)
		}
		end := func() {
			begun.Signal()
			if forget != nil {
				forget()
			}
		}
		task := &routine.Task{}
		r = r.WithContext(routine.WithTask(utilflowcontrol.WithInitializationSignal(r.Context(), begun), task))
		passed := false
		defer func() {
			if !passed {
				end()
			}
		}()
		next.ServeHTTP(w, r)
		if passed = task.Func != nil; passed { // it is not, if the watch was refused
			await <- func() {
				defer end()
				task.Func()
			}
			begun.Wait()
		}
	})
}
