package kit

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"sigs.k8s.io/yaml"

	"github.com/sqube/sqube/test/harness"
)

// Answer is a response with its whole body.
type Answer struct {
	Request string // method and path, for messages
	Code    int
	Header  http.Header
	Body    []byte
}

// Want fails the test unless the code is one of these.
func (a Answer) Want(t testing.TB, codes ...int) Answer {
	t.Helper()
	for _, code := range codes {
		if a.Code == code {
			return a
		}
	}
	t.Fatalf("%s: the status is %d instead of %v:\n%s", a.Request, a.Code, codes, a.Body)
	return a
}

// Refused fails the test unless the response is a failure Status with this code and reason, whose message has these parts.
func (a Answer) Refused(t testing.TB, code int, reason string, parts ...string) Answer {
	t.Helper()
	a.Want(t, code)
	if got := a.Text(t, "kind"); got != "Status" {
		t.Fatalf("%s: the response is a %q instead of a Status:\n%s", a.Request, got, a.Body)
	}
	if got := a.Text(t, "reason"); got != reason {
		t.Errorf("%s: the reason is %q instead of %q:\n%s", a.Request, got, reason, a.Body)
	}
	for _, part := range parts {
		if message := a.Text(t, "message"); !strings.Contains(message, part) {
			t.Errorf("%s: the message lacks %q:\n%s", a.Request, part, message)
		}
	}
	return a
}

// Object returns the body, JSON or YAML, as unstructured content.
func (a Answer) Object(t testing.TB) map[string]any {
	t.Helper()
	var object map[string]any
	decode := json.Unmarshal
	if !bytes.HasPrefix(a.Body, []byte("{")) {
		decode = func(data []byte, into any) error { return yaml.Unmarshal(data, into) }
	}
	if err := decode(a.Body, &object); err != nil {
		t.Fatalf("%s: the response is not an object: %v\n%s", a.Request, err, a.Body)
	}
	return object
}

// Text returns a string field of the body, or "" if there is none.
func (a Answer) Text(t testing.TB, fields ...string) string {
	t.Helper()
	value, _, err := unstructured.NestedString(a.Object(t), fields...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", a.Request, err, a.Body)
	}
	return value
}

// Value returns a field of the body, or nil if there is none. Numbers are float64.
func (a Answer) Value(t testing.TB, fields ...string) any {
	t.Helper()
	value, _, err := unstructured.NestedFieldNoCopy(a.Object(t), fields...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", a.Request, err, a.Body)
	}
	return value
}

// ResourceVersion returns the resourceVersion of an object or a list.
func (a Answer) ResourceVersion(t testing.TB) string {
	t.Helper()
	return a.Text(t, "metadata", "resourceVersion")
}

// Names returns the names of a list's items, in order.
func (a Answer) Names(t testing.TB) []string {
	t.Helper()
	items, _ := a.Value(t, "items").([]any)
	names := make([]string, 0, len(items))
	for _, item := range items {
		name, _, err := unstructured.NestedString(item.(map[string]any), "metadata", "name")
		harness.Must(t, err)
		names = append(names, name)
	}
	return names
}

// Warnings returns the sorted texts of a response's Warning headers. All must have the code 299 and no agent.
func Warnings(t testing.TB, a Answer) []string {
	t.Helper()
	parsed, errs := utilnet.ParseWarningHeaders(a.Header.Values("Warning"))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	texts := []string{}
	for _, w := range parsed {
		if w.Code != 299 || w.Agent != "-" {
			t.Errorf("%s: the warning is %v", a.Request, w)
		}
		texts = append(texts, w.Text)
	}
	slices.Sort(texts)
	return texts
}

// FieldJSON returns a field of an object as compact JSON, or "" if there is none.
func (a Answer) FieldJSON(t testing.TB, fields ...string) string {
	t.Helper()
	value, found, err := unstructured.NestedFieldNoCopy(a.Object(t), fields...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", a.Request, err, a.Body)
	}
	if !found {
		return ""
	}
	text := Must(json.Marshal(value))(t)
	return string(text)
}

// HasField fails the test unless a field of the body has this value, as compact JSON; "" means no such field.
func (a Answer) HasField(t testing.TB, want string, fields ...string) Answer {
	t.Helper()
	if got := a.FieldJSON(t, fields...); got != want {
		t.Errorf("%s: %v is %s instead of %s", a.Request, fields, got, want)
	}
	return a
}

// Warns fails the test unless the response has exactly these warnings.
func (a Answer) Warns(t testing.TB, texts ...string) Answer {
	t.Helper()
	var want []string
	for _, text := range texts {
		quoted := Must(json.Marshal(text))(t)
		want = append(want, "299 - "+string(quoted))
	}
	if got := a.Header.Values("Warning"); !slices.Equal(got, want) {
		t.Errorf("%s: the warnings are %q instead of %q", a.Request, got, want)
	}
	return a
}

// The most common expectations.

func (a Answer) OK(t testing.TB) Answer {
	t.Helper()
	return a.Want(t, http.StatusOK)
}

func (a Answer) Created(t testing.TB) Answer {
	t.Helper()
	return a.Want(t, http.StatusCreated)
}

func (a Answer) BadRequest(t testing.TB, parts ...string) Answer {
	t.Helper()
	return a.Refused(t, http.StatusBadRequest, "BadRequest", parts...)
}

func (a Answer) NotFound(t testing.TB, parts ...string) Answer {
	t.Helper()
	return a.Refused(t, http.StatusNotFound, "NotFound", parts...)
}

func (a Answer) Conflict(t testing.TB, parts ...string) Answer {
	t.Helper()
	return a.Refused(t, http.StatusConflict, "Conflict", parts...)
}

func (a Answer) Invalid(t testing.TB, parts ...string) Answer {
	t.Helper()
	return a.Refused(t, http.StatusUnprocessableEntity, "Invalid", parts...)
}

// Forbidden fails the test unless the request is denied with 403.
func (a Answer) Forbidden(t testing.TB, parts ...string) Answer {
	t.Helper()
	return a.Refused(t, http.StatusForbidden, "Forbidden", parts...)
}
