package servertest

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"sync"
	"time"
)

// Fault is something that every client of Kubernetes has to expect.
type Fault string

// The faults of Explore.
const (
	// SlowRequests take up to seconds until they arrive, or until their answer does.
	SlowRequests Fault = "slow requests"
	// LateEvents come up to seconds late. The events of one watch keep their order.
	LateEvents Fault = "late events"
	// Conflicts are 409 for an update with a resourceVersion, as if another update had come first.
	Conflicts Fault = "conflicts"
	// LostAnswers are connections that break when a write has been done, but not yet answered.
	LostAnswers Fault = "lost answers"
	// TooManyRequests are 429 with Retry-After.
	TooManyRequests Fault = "too many requests"
	// BrokenWatches end in the middle.
	BrokenWatches Fault = "broken watches"
	// ExpiredWatches are 410 for a watch that starts from a resourceVersion, as if it were too old.
	ExpiredWatches Fault = "expired watches"
	// Restarts break all connections at once, and refuse requests for a while.
	Restarts Fault = "restarts"
	// SlowWebhooks are the test's webhooks, and what else uses Server.Listen, when they take up to seconds. It concerns every client.
	SlowWebhooks Fault = "slow webhooks"
)

// allFaults has further faults at its end, so that the seeds stay what they are.
var allFaults = []Fault{SlowRequests, LateEvents, Conflicts, LostAnswers, TooManyRequests, BrokenWatches, ExpiredWatches, Restarts, SlowWebhooks}

// requestFaults are those that concern one request.
var requestFaults = []Fault{Conflicts, LostAnswers, TooManyRequests, BrokenWatches, ExpiredWatches}

const (
	// unsteadyTime is how long faults happen.
	unsteadyTime = time.Minute
	// shortest is the range of the delays that everything has, so that no two things happen at the same time.
	shortest = time.Millisecond
	// longest is the longest delay of a request or an event.
	longest = 10 * time.Second
	// logged is the shortest delay in the report.
	logged = 10 * time.Millisecond
	// slowestWebhook is the longest wait for a webhook's next bytes: the API server gives up after 10 seconds.
	slowestWebhook = 2 * time.Second
)

// faults decide what the clients of one seed meet. Decisions depend only on the seed and on what is asked, not on the order in which
// goroutines run.
type faults struct {
	seed     uint64
	start    time.Time
	chance   map[Fault]float64 // of a fault, whenever it is possible
	delay    map[Fault]time.Duration
	restarts []restart

	mu       sync.Mutex
	clients  int
	asked    map[string]int // requests by key
	happened []entry
	last     time.Duration // when a client last did something
}

type restart struct{ at, down time.Duration }

// entry is a line of the report.
type entry struct {
	at   time.Duration // since the start
	what string
}

// newFaults draws a seed's faults: two thirds of the kinds happen, with different frequencies and delays, since one that happens often
// hides what follows from another.
func newFaults(seed uint64, without []Fault) *faults {
	f := &faults{seed: seed, start: time.Now(), chance: map[Fault]float64{}, delay: map[Fault]time.Duration{}, asked: map[string]int{}}
	r := rand.New(rand.NewPCG(seed, 0))
	for _, fault := range allFaults {
		happens, chance, delay := r.IntN(3) > 0, between(r, 0.1, 0.8), time.Duration(between(r, float64(logged), float64(longest)))
		if happens && !slices.Contains(without, fault) {
			f.chance[fault], f.delay[fault] = chance, delay
		}
	}
	if f.chance[Restarts] > 0 {
		for range 1 + r.IntN(3) {
			at := time.Duration(between(r, float64(10*time.Millisecond), float64(unsteadyTime)))
			f.restarts = append(f.restarts, restart{at, time.Duration(between(r, float64(100*time.Millisecond), float64(10*time.Second)))})
		}
	}
	return f
}

// between draws a number whose logarithm is evenly distributed.
func between(r *rand.Rand, low, high float64) float64 {
	return low * math.Pow(high/low, r.Float64())
}

// client returns a wrapper for the transport of a new client.
func (f *faults) client() func(http.RoundTripper) http.RoundTripper {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.clients++
	name := fmt.Sprintf("client %d", f.clients)
	return func(next http.RoundTripper) http.RoundTripper { return &unsteady{faults: f, client: name, next: next} }
}

// generated are the random ends of names made from generateName.
var generated = regexp.MustCompile(`-[bcdfghjklmnpqrstvwxz2456789]{5}(/|$)`)

// draws returns the random numbers for a request of a client, which depend on how often the client has sent it.
func (f *faults) draws(client, request string) *rand.Rand {
	key := client + " " + generated.ReplaceAllString(request, "-*$1")
	f.mu.Lock()
	f.asked[key]++
	n := f.asked[key]
	f.mu.Unlock()
	h := fnv.New64a()
	fmt.Fprint(h, n, key)
	return rand.New(rand.NewPCG(f.seed, h.Sum64()))
}

// happens reports whether a fault happens now. It always draws one number.
func (f *faults) happens(r *rand.Rand, fault Fault) bool {
	return r.Float64() < f.chance[fault] && time.Since(f.start) < unsteadyTime
}

// moment draws a short delay.
func moment(r *rand.Rand) time.Duration { return time.Duration(r.Int64N(int64(shortest))) }

// wait draws a delay.
func (f *faults) wait(r *rand.Rand, fault Fault) time.Duration {
	short, long := moment(r), time.Duration(r.Float64()*float64(f.delay[fault]))
	if f.happens(r, fault) {
		return short + long
	}
	return short
}

// down reports whether the server is down, and when it goes down next.
func (f *faults) down() (down bool, next time.Time) {
	now := time.Since(f.start)
	next = f.start.Add(365 * 24 * time.Hour)
	for _, r := range f.restarts {
		down = down || now >= r.at && now < r.at+r.down
		if at := f.start.Add(r.at); r.at > now && at.Before(next) {
			next = at
		}
	}
	return down, next
}

// note adds a line to the report.
func (f *faults) note(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = time.Since(f.start)
	f.happened = append(f.happened, entry{f.last, fmt.Sprintf(format, args...)})
}

// seen remembers that a client did something.
func (f *faults) seen() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = time.Since(f.start)
}
