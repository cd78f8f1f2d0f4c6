package server

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sqube/sqube/server/audit"
)

// TestPanicsOfWatches checks that a watch ends with the panic of its filters or of its handler.
func TestPanicsOfWatches(t *testing.T) {
	for _, test := range []struct {
		name            string
		filter, handler any // what they panic with
		want            string
	}{
		{"no panic", nil, nil, "<nil>"},
		{"in a filter", "oops", nil, "oops\ngoroutine "},
		{"in the handler", nil, "oops", "oops"},
		{"to abort the response, in a filter", http.ErrAbortHandler, nil, http.ErrAbortHandler.Error()},
		{"to abort the response, in the handler", nil, http.ErrAbortHandler, http.ErrAbortHandler.Error()},
	} {
		t.Run(test.name, func(t *testing.T) {
			served := false
			s := &Server{base: &base{}, security: &security{audit: &audit.Log{}}, apis: &apis{}, background: &background{}}
			begin := s.beginWatch(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				served = true
				repanic(test.handler)
			}))
			handler := awaitWatch(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				repanic(test.filter)
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
			if served != (test.filter == nil) {
				t.Errorf("served: %v", served)
			}
		})
	}
}
