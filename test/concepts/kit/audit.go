package kit

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// AuditEvent is an event of the log, as in audit.k8s.io/v1.
type AuditEvent struct {
	metav1.TypeMeta
	Level, AuditID, Stage, RequestURI, Verb, UserAgent string

	User             authenticationv1.UserInfo
	ImpersonatedUser *authenticationv1.UserInfo
	SourceIPs        []string
	ObjectRef        *struct {
		Resource, Namespace, Name, UID, APIGroup, APIVersion, ResourceVersion, Subresource string
	}
	ResponseStatus                           *metav1.Status
	RequestObject                            any // a JSON patch is a list
	ResponseObject                           map[string]any
	Annotations                              map[string]string
	RequestReceivedTimestamp, StageTimestamp metav1.MicroTime
}

// AuditLog is the file in which servers record requests, one event per line.
type AuditLog string

// Events waits until the log has the request's event of the stage, and returns all events of the request up to it.
func (l AuditLog) Events(t testing.TB, id, stage string) []AuditEvent {
	t.Helper()
	for deadline := time.Now().Add(RequestTimeout); ; time.Sleep(10 * time.Millisecond) { // files have no notifications
		text := Must(os.ReadFile(string(l)))(t)
		events := AuditEvents(t, text, id)
		if slices.ContainsFunc(events, func(e AuditEvent) bool { return e.Stage == stage }) {
			return events
		}
		if time.Now().After(deadline) {
			t.Fatalf("the log has no %s event of %s, only %v", stage, id, events)
		}
	}
}

// AuditEvents returns the events of the request in a log.
func AuditEvents(t testing.TB, log []byte, id string) []AuditEvent {
	t.Helper()
	var events []AuditEvent
	for line := range bytes.Lines(log) {
		if !bytes.Contains(line, []byte(id)) || !bytes.HasSuffix(line, []byte("\n")) {
			continue
		}
		var e AuditEvent
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		events = append(events, e)
	}
	return events
}

// Send sends a request and returns the response, and the last event in the log about it.
func (l AuditLog) Send(t testing.TB, c *Client, method, path string, headers Header, body any) (Answer, AuditEvent) {
	t.Helper()
	id := string(uuid.NewUUID())
	a := c.Send(t, method, path, append(Header{"Audit-ID", id}, headers...), body)
	events := l.Events(t, id, "ResponseComplete")
	return a, events[len(events)-1]
}

// Lacks fails the test if the log has any event of a request. A later request in the log shows that none will follow.
func (l AuditLog) Lacks(t testing.TB, c *Client, id string) {
	t.Helper()
	l.Send(t, c, http.MethodGet, "/version", nil, nil)
	text := Must(os.ReadFile(string(l)))(t)
	if events := AuditEvents(t, text, id); len(events) > 0 {
		t.Errorf("the log has %v", events)
	}
}

// WantAnnotations fails the test unless the event has these annotations; it may have others.
func WantAnnotations(t testing.TB, e AuditEvent, want map[string]string) {
	t.Helper()
	got := maps.Clone(e.Annotations)
	maps.DeleteFunc(got, func(key, _ string) bool { _, asked := want[key]; return !asked })
	if !maps.Equal(got, want) {
		t.Errorf("the annotations are %v instead of %v", e.Annotations, want)
	}
}
