package fleet

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
)

const (
	// maxSeen is how many watches a cluster remembers that its sleep has ended, and how many of them may wait for it to wake up.
	maxSeen = 16
	// maxPark is how long a watch waits at most.
	maxPark = 5 * time.Minute
)

// mark stands for a watch: who asked for what.
type mark [12]byte

// parked are the watches that the sleep of a cluster has ended. Each client tries again at once, with the newest resourceVersion: there is
// nothing to tell, so its request waits until the cluster wakes up for another reason. Others wake it, since nobody knows whether the cluster
// would let them in.
type parked struct {
	revision int64
	known    []mark
	waiting  int
	woken    chan struct{} // closed when the cluster wakes up; nil if nobody waits
}

// markOf returns the mark of a watch, and from which revision it is.
func markOf(r *http.Request) (m mark, revision int64, ok bool) {
	q := r.URL.Query()
	revision, err := strconv.ParseInt(q.Get("resourceVersion"), 10, 64)
	ok = err == nil && q.Get("sendInitialEvents") != "true"
	for _, varies := range []string{"resourceVersion", "timeout", "timeoutSeconds", "sendInitialEvents", "resourceVersionMatch"} {
		q.Del(varies)
	}
	h := sha256.New()
	fmt.Fprintf(h, "%q %q\n", r.URL.Path, q.Encode())
	for _, name := range slices.Sorted(maps.Keys(r.Header)) { // whatever says who it is
		fmt.Fprintf(h, "%q %q\n", name, r.Header[name])
	}
	if r.TLS != nil {
		for _, certificate := range r.TLS.PeerCertificates {
			_, _ = h.Write(certificate.Raw)
		}
	}
	copy(m[:], h.Sum(nil))
	return m, revision, ok
}

// accepted is for how long a watch is open when it is one that the cluster has let in.
const accepted = time.Second

// watching notes a watch that is open, until leave is called.
func (c *cluster) watching(request *http.Request) (leave func()) {
	m, _, _ := markOf(request)
	r := c.current()
	if r == nil {
		return func() {}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.open) >= maxSeen {
		return func() {}
	}
	if r.open == nil {
		r.open = map[mark]time.Time{}
	}
	opened := time.Now()
	r.open[m] = opened
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.open[m].Equal(opened) && !r.parks {
			delete(r.open, m)
		}
	}
}

// naps reports whether the cluster is falling asleep since nobody asks.
func (r *running) naps() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.parks
}

// park has the watches wait that the sleep of the cluster has ended.
func (c *cluster) park(r *running) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.parks || len(r.open) == 0 {
		return
	}
	p := &parked{revision: r.revision}
	for m, opened := range r.open {
		if r.napped.Sub(opened) > accepted {
			p.known = append(p.known, m)
		}
	}
	c.mu.Lock()
	c.parked = p
	c.mu.Unlock()
}

// unpark has the watches that wait go on.
func (c *cluster) unpark() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.parked; p != nil && p.woken != nil {
		close(p.woken)
	}
	c.parked = nil
}

// await has a watch wait that has nothing to tell, and reports whether its time is up. Otherwise the cluster serves it.
func (c *cluster) await(r *http.Request) (over bool) {
	m, revision, ok := markOf(r)
	if r := c.current(); r != nil && r.naps() {
		<-r.ended // soon: then it is known which watches may wait
	}
	c.mu.Lock()
	p := c.parked
	if p == nil || !ok || revision < p.revision || p.waiting >= maxSeen || c.running != nil || !slices.Contains(p.known, m) {
		c.mu.Unlock()
		return false
	}
	if p.woken == nil {
		p.woken = make(chan struct{})
	}
	p.waiting++
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		p.waiting--
		c.mu.Unlock()
	}()
	limit := maxPark
	if seconds, err := strconv.Atoi(r.URL.Query().Get("timeoutSeconds")); err == nil && seconds > 0 {
		limit = min(limit, time.Duration(seconds)*time.Second)
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.woken:
		return false
	case <-timer.C:
		return true
	case <-r.Context().Done():
		return true
	case <-c.fleet.stopping:
		return true
	}
}

// endWatch answers a watch as one that has ended without an event.
func endWatch(w http.ResponseWriter, r *http.Request) {
	kind := runtime.ContentTypeJSON
	if strings.HasPrefix(r.Header.Get("Accept"), runtime.ContentTypeProtobuf) {
		kind = runtime.ContentTypeProtobuf + ";stream=watch"
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(http.StatusOK)
}
