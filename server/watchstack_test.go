package server

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/routine"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"

	"github.com/sqube/sqube/server/stack"
	"github.com/sqube/sqube/server/watchtask"
)

// TestPanicsOfWatches checks that a watch ends with the panic of its filters, of its handler, or of what that left to its task.
func TestPanicsOfWatches(t *testing.T) {
	for _, test := range []struct {
		name                  string
		filter, handler, task any // what they panic with
		want                  string
	}{
		{"no panic", nil, nil, nil, "<nil>"},
		{"in a filter", "oops", nil, nil, "oops\ngoroutine "},
		{"in the handler", nil, "oops", nil, "oops\ngoroutine "},
		{"in the task", nil, nil, "oops", "oops"},
		{"to abort the response, in a filter", http.ErrAbortHandler, nil, nil, http.ErrAbortHandler.Error()},
		{"to abort the response, in the handler", nil, http.ErrAbortHandler, nil, http.ErrAbortHandler.Error()},
		{"to abort the response, in the task", nil, nil, http.ErrAbortHandler, http.ErrAbortHandler.Error()},
	} {
		t.Run(test.name, func(t *testing.T) {
			served, ended := false, false
			s := &Server{base: &base{}, security: &security{}, apis: &apis{}, background: &background{}}
			begin := s.beginServing(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				stack.Repanic(test.handler)
				routine.TaskFrom(r.Context()).Func = func() {
					served = true
					utilflowcontrol.WatchInitialized(r.Context())
					stack.Repanic(test.task)
				}
				watchtask.AtEnd(r, func() { ended = served })
			}))
			handler := awaitServing(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				stack.Repanic(test.filter)
				begin.ServeHTTP(w, r)
			}))
			r := httptest.NewRequest(http.MethodGet, "/api/v1/pods?watch=1", nil)
			r = r.WithContext(request.WithRequestInfo(r.Context(), &request.RequestInfo{Verb: "watch"}))
			panicked := func() (panicked any) {
				defer func() { panicked = recover() }()
				handler.ServeHTTP(httptest.NewRecorder(), r)
				return nil
			}()
			if !strings.HasPrefix(fmt.Sprint(panicked), test.want) {
				t.Errorf("panicked with %v, want %s", panicked, test.want)
			}
			if want := test.filter == nil && test.handler == nil; served != want || ended != want {
				t.Errorf("served: %v, ended: %v", served, ended)
			}
		})
	}
}
