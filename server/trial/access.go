package trial

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// access is how clients outside reach the server inside, as one user.
type access struct {
	door    *door
	answers *Answers
	next    http.RoundTripper
}

// outside returns the configuration for clients outside that one of the server inside stands for. now is the time inside: years may have
// passed since then, and certificates expired.
func (a *access) outside(inside *rest.Config, now time.Time) (*rest.Config, error) {
	config, err := rest.TLSConfigFor(inside)
	if err != nil {
		return nil, err
	}
	config.Time = func() time.Time { return now }
	a.next = &http.Transport{
		TLSClientConfig: config, ForceAttemptHTTP2: true, DisableCompression: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return a.door.enter(ctx) },
	}
	return &rest.Config{Host: inside.Host, Transport: a, QPS: -1}, nil
}

// RoundTrip implements http.RoundTripper.
func (a *access) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodGet && request.Method != http.MethodHead {
		a.door.wrote()
	}
	answer, err := a.next.RoundTrip(request)
	if err == nil {
		a.note(answer)
	}
	return answer, err
}

// note gathers what the API answers.
func (a *access) note(answer *http.Response) {
	warnings, _ := utilnet.ParseWarningHeaders(answer.Header["Warning"])
	for _, w := range warnings {
		a.answers.Warn(w.Text)
	}
	evicting := strings.HasSuffix(answer.Request.URL.Path, "/eviction") && answer.StatusCode == http.StatusTooManyRequests
	if !evicting && !refusing(answer.Request.Method, answer.StatusCode) {
		return
	}
	const most = 1 << 20
	text, _ := io.ReadAll(io.LimitReader(answer.Body, most)) // the client gets the error
	answer.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(text), answer.Body), answer.Body}
	var status metav1.Status
	if json.Unmarshal(text, &status) != nil || status.Status != metav1.StatusFailure { // it is protobuf
		status = metav1.Status{Code: int32(answer.StatusCode), Message: answer.Request.Method + " " + answer.Request.URL.Path + ": " + answer.Status}
	}
	if evicting {
		a.answers.block(answer.Request.URL.Path, &status)
		return
	}
	object := ""
	if d := status.Details; d != nil && d.Name != "" {
		object = d.Kind + "/" + d.Name
	}
	a.answers.commandRefused(refusal(object, &apierrors.StatusError{ErrStatus: status}))
}
