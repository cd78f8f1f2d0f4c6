package server

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/routine"
	"k8s.io/apiserver/pkg/storage"
	etcd3metrics "k8s.io/apiserver/pkg/storage/etcd3/metrics"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/sqube/sqube/server/stack"
	"github.com/sqube/sqube/server/watchtask"
	"github.com/sqube/sqube/test/harness"
)

// TestRunningWork checks that the metrics show for how long the work of queues has been running, and that a queue with nothing to do
// has no goroutine.
func TestRunningWork(t *testing.T) {
	queue := func() *workqueue.Typed[string] {
		return workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: "running-work"})
	}
	metrics := withRunningWork(legacyregistry.Handler())
	value := func(name string) float64 {
		answer := httptest.NewRecorder()
		metrics.ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
		found := regexp.MustCompile(`(?m)^` + name + `\{name="running-work"\} (.*)$`).FindStringSubmatch(answer.Body.String())
		if found == nil {
			t.Fatalf("no %s", name)
		}
		v, err := strconv.ParseFloat(found[1], 64)
		harness.Must(t, err)
		return v
	}
	expect := func(total, longest float64) {
		t.Helper()
		if got := value("workqueue_unfinished_work_seconds"); got != total {
			t.Errorf("unfinished work of %g s, not %g", got, total)
		}
		if got := value("workqueue_longest_running_processor_seconds"); got != longest {
			t.Errorf("the longest work has taken %g s, not %g", got, longest)
		}
	}
	synctest.Test(t, func(*testing.T) {
		first, second := queue(), queue()
		defer first.ShutDown()
		defer second.ShutDown()
		time.Sleep(time.Minute)
		all := make([]byte, 1<<20)
		for stack := range strings.SplitSeq(string(all[:runtime.Stack(all, true)]), "\n\n") {
			if strings.Contains(stack, "synctest bubble") && strings.Contains(stack, "workqueue.(*Typed") {
				t.Errorf("a goroutine of a queue with nothing to do:\n%s", stack)
			}
		}
		first.Add("a")
		first.Get()
		time.Sleep(2 * time.Second)
		first.Add("b")
		first.Get()
		second.Add("a")
		second.Get()
		time.Sleep(time.Second)
		expect(5, 3)
		first.Done("a")
		expect(2, 1)
		second.Done("a")
		first.Done("b")
		expect(0, 0)
	})
}

type counted struct {
	storage.Interface
	_ int // so that two are not at the same address
}

// TestForgottenWhileCounting deletes the definition of a resource while its objects are counted: the metric must not come back.
func TestForgottenWhileCounting(t *testing.T) {
	etcd3metrics.Register()
	c := newObjectCounter(false)
	resource := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	made, other := &counted{}, &counted{}
	c.storages[resource] = []storage.Interface{made, other}
	for _, test := range []struct {
		step    func()
		metrics int
	}{
		{func() { c.report(resource, made, storage.Stats{ObjectCount: 3}, nil) }, 1},
		{func() { c.forget(resource, other) }, 1},
		{func() { c.forget(resource, made); c.report(resource, made, storage.Stats{ObjectCount: 3}, nil) }, 0},
	} {
		test.step()
		families, err := legacyregistry.DefaultGatherer.Gather()
		harness.Must(t, err)
		for _, name := range []string{"apiserver_resource_objects", "apiserver_storage_objects", "apiserver_resource_size_estimate_bytes"} {
			found := 0
			for _, family := range families {
				if family.GetName() == name {
					found = len(family.GetMetric())
				}
			}
			if found != test.metrics {
				t.Errorf("%s has %d values, want %d", name, found, test.metrics)
			}
		}
	}
}

// TestDebugSocketInUse leaves a socket alone that another process listens on, and replaces one that none does.
func TestDebugSocketInUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	first, err := listenProfiling(path)
	harness.Must(t, err)
	if _, err := listenProfiling(path); err == nil || !strings.Contains(err.Error(), "another process listens") {
		t.Errorf("a second server: %v", err)
	}
	first.(*net.UnixListener).SetUnlinkOnClose(false) // as if it were killed
	harness.Must(t, first.Close())
	again, err := listenProfiling(path)
	harness.Must(t, err)
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

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
