package servertest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"math/rand/v2"
	"mime"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// unsteady is the transport of a client that meets faults.
type unsteady struct {
	faults *faults
	client string
	next   http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (u *unsteady) RoundTrip(request *http.Request) (*http.Response, error) {
	query := request.URL.Query()
	if request.Header.Get("Upgrade") != "" || query.Get("follow") == "true" {
		return u.next.RoundTrip(request) // a connection into a Pod
	}
	watch := query.Get("watch") == "true" || query.Get("watch") == "1"
	a := &attempt{unsteady: u, what: request.Method + " " + request.URL.Path}
	if watch {
		a.what = "WATCH " + request.URL.Path
	}
	a.draws = u.faults.draws(u.client, a.what+" "+query.Get("labelSelector")+" "+query.Get("fieldSelector"))
	before, after, fault := u.faults.wait(a.draws, SlowRequests), u.faults.wait(a.draws, SlowRequests), a.fault(request, watch)
	answer, err := a.send(request, before, fault)
	if err != nil || watch && answer.StatusCode == http.StatusOK {
		return answer, err
	}
	return a.receive(answer, after, fault)
}

// attempt is a request on its way.
type attempt struct {
	*unsteady
	what   string
	draws  *rand.Rand
	ctx    context.Context // ends when the connection breaks
	cancel context.CancelFunc
}

// fault draws what happens to the request.
func (a *attempt) fault(request *http.Request, watch bool) (happens Fault) {
	possible := map[Fault]bool{
		TooManyRequests: true,
		LostAnswers:     request.Method != http.MethodGet,
		Conflicts:       request.Method == http.MethodPut && hasVersion(request),
		ExpiredWatches:  watch && startsFromVersion(request),
		BrokenWatches:   watch,
	}
	for _, fault := range requestFaults {
		if a.faults.happens(a.draws, fault) && possible[fault] && happens == "" {
			happens = fault
		}
	}
	return happens
}

// send sends the request after a delay, or answers it with the fault.
func (a *attempt) send(request *http.Request, delay time.Duration, fault Fault) (*http.Response, error) {
	closeBody := func() {
		if request.Body != nil {
			request.Body.Close()
		}
	}
	a.late(delay, "arrives")
	a.faults.seen()
	if err := sleep(request.Context(), delay); err != nil {
		closeBody()
		return nil, err
	}
	down, restart := a.faults.down()
	if down {
		closeBody()
		a.note("is refused")
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	switch fault {
	case Conflicts:
		closeBody()
		return a.refuse(request, http.StatusConflict, metav1.StatusReasonConflict, "the object has been modified; please apply your changes to the latest version and try again"), nil
	case TooManyRequests:
		closeBody()
		return a.refuse(request, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "too many requests, please try again later"), nil
	case ExpiredWatches:
		closeBody()
		return a.refuse(request, http.StatusGone, metav1.StatusReasonExpired, "too old resource version"), nil
	case BrokenWatches:
		if end := time.Now().Add(time.Duration(between(a.draws, float64(shortest), float64(unsteadyTime)/2))); end.Before(restart) {
			restart = end
		}
	}
	a.ctx, a.cancel = context.WithDeadline(request.Context(), restart.Add(moment(a.draws)))
	answer, err := a.next.RoundTrip(request.WithContext(a.ctx))
	if err != nil {
		defer a.cancel()
		return nil, a.broken(err, reset)
	}
	if strings.HasPrefix(a.what, "WATCH ") && answer.StatusCode == http.StatusOK {
		answer.Body = newEvents(a, answer)
	}
	return answer, nil
}

// receive returns the answer after a delay.
func (a *attempt) receive(answer *http.Response, delay time.Duration, fault Fault) (*http.Response, error) {
	if a.ctx == nil { // it never left
		return answer, nil
	}
	defer a.cancel()
	body, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	if err != nil {
		return nil, a.broken(err, reset)
	}
	a.late(delay, "is answered")
	if err := sleep(a.ctx, delay); err != nil {
		return nil, a.broken(err, reset)
	}
	if fault == LostAnswers {
		a.note("→ %d, but the connection breaks before the answer", answer.StatusCode)
		return nil, reset
	}
	answer.Body = io.NopCloser(bytes.NewReader(body))
	return answer, nil
}

var reset = &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}

// broken returns instead if the connection broke, otherwise err.
func (a *attempt) broken(err, instead error) error {
	if a.ctx.Err() != context.DeadlineExceeded {
		return err
	}
	if deadline, _ := a.ctx.Deadline(); time.Now().Before(deadline) {
		return err // the client's own deadline
	}
	a.note("breaks")
	return instead
}

// late adds a long delay to the report.
func (a *attempt) late(delay time.Duration, what string) {
	if delay >= logged {
		a.note("%s %v late", what, delay.Round(time.Millisecond))
	}
}

// note adds a line about the request to the report.
func (a *attempt) note(format string, args ...any) {
	a.faults.note(a.client+": "+a.what+" "+format, args...)
}

// refuse returns the answer of a server that does not do what it is asked.
func (a *attempt) refuse(request *http.Request, code int, reason metav1.StatusReason, message string) *http.Response {
	a.note("→ %d %s", code, reason)
	status := metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message}
	body, _ := json.Marshal(status) // has only strings and numbers
	header := http.Header{"Content-Type": {"application/json"}}
	if code == http.StatusTooManyRequests {
		header.Set("Retry-After", "1")
	}
	return &http.Response{
		Status: http.StatusText(code), StatusCode: code, Proto: "HTTP/2.0", ProtoMajor: 2, Header: header,
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: request,
	}
}

// sleep waits, or returns why it did not.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// startsFromVersion reports whether a watch continues from a resourceVersion, which may be too old.
func startsFromVersion(request *http.Request) bool {
	query := request.URL.Query()
	version := query.Get("resourceVersion")
	return version != "" && version != "0" && query.Get("sendInitialEvents") != "true"
}

// hasVersion reports whether the object in a request has a resourceVersion.
func hasVersion(request *http.Request) bool {
	if request.GetBody == nil {
		return false
	}
	body, err := request.GetBody()
	if err != nil {
		return false
	}
	defer body.Close()
	content, err := io.ReadAll(body)
	if err != nil {
		return false
	}
	var object metav1.PartialObjectMetadata
	if json.Unmarshal(content, &object) == nil {
		return object.ResourceVersion != ""
	}
	decoded, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), content)
	if err != nil {
		return false
	}
	o, ok := decoded.(metav1.Object)
	return ok && o.GetResourceVersion() != ""
}

// events is the body of a watch, whose events come late.
type events struct {
	*attempt
	body     io.ReadCloser
	buffered *bufio.Reader
	protobuf bool
	event    []byte // what is left of the current one
	n        int    // its number
}

func newEvents(a *attempt, answer *http.Response) *events {
	media, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type")) // of JSON, if invalid
	return &events{attempt: a, body: answer.Body, buffered: bufio.NewReader(answer.Body), protobuf: media == runtime.ContentTypeProtobuf}
}

// Read implements io.Reader.
func (e *events) Read(p []byte) (int, error) {
	if len(e.event) == 0 {
		if err := e.advance(); err != nil {
			return 0, err
		}
	}
	n := copy(p, e.event)
	e.event = e.event[n:]
	return n, nil
}

// advance waits for the next event.
func (e *events) advance() (err error) {
	if e.event, err = e.frame(); err != nil {
		return e.broken(err, io.ErrUnexpectedEOF)
	}
	e.n++
	delay := e.faults.wait(e.draws, LateEvents)
	if delay >= logged {
		e.note("gets its event %d %v late", e.n, delay.Round(time.Millisecond))
	}
	if err := sleep(e.ctx, delay); err != nil {
		e.event = nil
		return e.broken(err, io.ErrUnexpectedEOF)
	}
	return nil
}

// frame reads the bytes of one event.
func (e *events) frame() ([]byte, error) {
	if !e.protobuf {
		return e.buffered.ReadBytes('\n')
	}
	head, err := e.buffered.Peek(4)
	if err != nil {
		return nil, err
	}
	frame := make([]byte, 4+binary.BigEndian.Uint32(head))
	_, err = io.ReadFull(e.buffered, frame)
	return frame, err
}

// Close implements io.Closer.
func (e *events) Close() error {
	e.cancel()
	return e.body.Close()
}
