// Package watchtask is for handlers of watches. A watch lives for minutes, and would keep their frames on its stack. So they may return
// before it ends, and leave the rest to the routine.Task of its request.
package watchtask

import (
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/routine"
)

// AtEnd calls f when what the handlers of the request have left to its task has ended, even by a panic, or at once if that is nothing.
func AtEnd(r *http.Request, f func()) {
	task := routine.TaskFrom(r.Context())
	if task == nil || task.Func == nil {
		f()
		return
	}
	rest := task.Func
	task.Func = func() {
		defer f()
		rest()
	}
}

// Whole returns a handler that leaves a call of next to the task of the request. It calls next itself if there is no task, or if the
// request is no watch after all: its context ends when the filters before return.
func Whole(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		task := routine.TaskFrom(r.Context())
		info, ok := request.RequestInfoFrom(r.Context())
		if task == nil || !ok || info.Verb != "watch" {
			next.ServeHTTP(w, r)
			return
		}
		r = r.WithContext(routine.WithTask(r.Context(), nil)) // for upstream's handler of watches, which looks for a task too
		task.Func = func() {
			request := r
			r = nil // the task outlives its use
			next.ServeHTTP(w, request)
		}
	})
}
