package fleet

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/sqube/sqube/test/harness"
)

// watchOf returns a watch of somebody.
func watchOf(version, token string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/api/v1/configmaps?watch=1&timeoutSeconds=400&resourceVersion="+version, nil)
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

// TestParked checks which watches wait for a cluster that sleeps: those that its sleep has ended, if they have seen all.
func TestParked(t *testing.T) {
	f := newTestFleet(t, func(*cluster) error { return nil }, func(*cluster) {})
	c := f.addForTest("x", "a")
	_, leave, err := c.enter(t.Context(), true)
	harness.Must(t, err)
	r := c.current()
	forget := c.watching(watchOf("1", "jane"))
	denied := c.watching(watchOf("1", "denied"))
	denied() // it was answered at once
	r.change(time.Minute)
	if again, _ := r.nap(time.Now().Add(time.Hour)); !again.IsZero() {
		t.Fatal("it does not fall asleep")
	}
	over := make(chan bool)
	go func() { over <- c.await(watchOf("7", "jane")) }() // while it falls asleep
	forget()
	leave()
	<-r.ended

	for what, watch := range map[string]*http.Request{
		"of somebody else": watchOf("7", "joe"), "that the cluster has refused": watchOf("7", "denied"), "that wants all": watchOf("", "jane"),
		"of other objects": func() *http.Request { w := watchOf("7", "jane"); w.URL.Path = "/api/v1/secrets"; return w }(),
	} {
		if c.await(watch) {
			t.Errorf("a watch %s waited", what)
		}
	}
	harness.Eventually(t, "the watch waits", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.parked.waiting == 1 })
	_, leave, err = c.enter(t.Context(), false)
	harness.Must(t, err)
	defer leave()
	if <-over {
		t.Error("the watch ended when the cluster woke up")
	}
}
