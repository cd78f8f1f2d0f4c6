package loopback

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// LongWatches returns a transport whose watches last that long, whatever their clients ask for. client-go's informers watch again every
// five to ten minutes.
func LongWatches(transport http.RoundTripper, timeout time.Duration) http.RoundTripper {
	return longWatches{transport, strconv.Itoa(int(timeout / time.Second))}
}

type longWatches struct {
	transport http.RoundTripper
	seconds   string
}

// RoundTrip implements http.RoundTripper.
func (l longWatches) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.Contains(r.URL.RawQuery, "watch=") {
		r = r.Clone(r.Context())
		query := r.URL.Query()
		query.Set("timeoutSeconds", l.seconds)
		r.URL.RawQuery = query.Encode()
	}
	return l.transport.RoundTrip(r)
}
