package server

import (
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/routine"
)

// A watch lives for minutes, and would keep the frames of all filters on its stack. So the filters between awaitWatch and beginWatch run in
// another goroutine, which ends before the watch begins. They must not end anything that the watch needs.

// awaitWatch calls next in another goroutine, and then serves the watch that beginWatch left to it.
func awaitWatch(next http.Handler) http.Handler {
	return routine.WithRoutine(withStack(next), isWatch)
}

func isWatch(_ *http.Request, info *request.RequestInfo) bool {
	return info != nil && info.Verb == "watch"
}

// beginWatch leaves a watch to awaitWatch.
func beginWatch(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		task := routine.TaskFrom(r.Context())
		if task == nil {
			next.ServeHTTP(w, r)
			return
		}
		r = r.WithContext(routine.WithTask(r.Context(), nil)) // for upstream's handler of watches, which looks for a task too
		task.Func = func() { next.ServeHTTP(w, r) }
	})
}
