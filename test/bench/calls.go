package main

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// callTimes are the durations of clients' requests, by verb and resource. Watches are left out.
type callTimes struct {
	mu    sync.Mutex
	times map[string][]time.Duration
}

// wrap returns a transport that times requests.
func (c *callTimes) wrap(next http.RoundTripper) http.RoundTripper {
	return timedTransport{next, c}
}

type timedTransport struct {
	next  http.RoundTripper
	calls *callTimes
}

var requestInfo = apirequest.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// RoundTrip sends the request. A request without a response is not timed: it is retried, or reported as failed.
func (t timedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	info, err := requestInfo.NewRequestInfo(r)
	began := time.Now()
	response, sent := t.next.RoundTrip(r)
	if err == nil && sent == nil && info.IsResourceRequest && info.Verb != "watch" {
		t.calls.add(callName(info.Verb, info.Resource, info.Subresource), time.Since(began))
	}
	return response, sent
}

func callName(verb, resource, subresource string) string {
	if subresource != "" {
		resource += "/" + subresource
	}
	return strings.ToUpper(verb) + " " + resource
}

func (c *callTimes) add(name string, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.times == nil {
		c.times = map[string][]time.Duration{}
	}
	c.times[name] = append(c.times[name], took)
}

// worst returns the number of calls, and the name and the p99 of the slowest kind.
func (c *callTimes) worst() (calls int, name string, p99 time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for of, times := range c.times {
		calls += len(times)
		slices.Sort(times)
		if took := quantile(times, 99); took > p99 {
			name, p99 = of, took
		}
	}
	return calls, name, p99
}
