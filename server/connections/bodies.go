package connections

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// Bodies ends the body of a request that has not arrived after timeout: its reader gets a 408. It starts when the handler first reads, so a
// request may wait for its turn. A body that the handler does not read to its end has lingerTimeout to arrive, because net/http reads it
// before it answers. Long-running requests have no limit. It needs the request's RequestInfo.
func Bodies(next http.Handler, longRunning request.LongRunningRequestCheck, timeout time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if of(r) == nil || r.Body == nil || r.Body == http.NoBody || !ok || longRunning(r, info) {
			next.ServeHTTP(w, r)
			return
		}
		b := &timedBody{ReadCloser: r.Body, account: of(r), control: http.NewResponseController(w), timeout: timeout}
		r = r.WithContext(r.Context()) // a shallow copy
		r.Body = b
		defer b.end(r)
		next.ServeHTTP(w, r)
	})
}

type timedBody struct {
	io.ReadCloser
	account *connection
	control *http.ResponseController
	timeout time.Duration

	mu    sync.Mutex  // a handler may go on after its request has timed out
	timer *time.Timer // nil before the first Read
	whole bool        // has been read
	over  bool        // the request has ended, and control can't be used
}

// Read implements io.Reader.
func (b *timedBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	if b.timer == nil {
		b.timer = time.AfterFunc(b.timeout, b.giveUp)
	}
	b.mu.Unlock()
	b.account.waits.add(0, -1)
	n, err := b.ReadCloser.Read(p)
	b.account.waits.add(0, 1)
	if err == nil {
		return n, nil
	}
	b.mu.Lock()
	b.timer.Stop()
	b.whole = err == io.EOF
	b.mu.Unlock()
	switch {
	case b.whole:
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusRequestTimeout, Reason: metav1.StatusReasonTimeout,
			Message: "the body of the request did not arrive within " + b.timeout.String(),
		}}
	default: // the client has gone, or breaks the protocol
		err = apierrors.NewBadRequest("the body of the request could not be read: " + err.Error())
	}
	return n, err
}

// giveUp fails the current read: by a deadline in the past, which network connections support.
func (b *timedBody) giveUp() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.over {
		_ = b.control.SetReadDeadline(time.Unix(1, 0))
	}
}

func (b *timedBody) end(r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	if b.timer != nil {
		b.timer.Stop()
	}
	if !b.whole && r.ProtoMajor == 1 {
		_ = b.control.SetReadDeadline(time.Now().Add(lingerTimeout))
	}
}
