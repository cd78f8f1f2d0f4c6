package server

import (
	"net/http/httptest"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-base/metrics/legacyregistry"
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
		if err != nil {
			t.Fatal(err)
		}
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
