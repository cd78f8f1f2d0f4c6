package bodies_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sqube/sqube/server/bodies"
)

// TestRawBodies reads bodies whose inner parts stay as they were sent: these can be large, but their outline can't.
func TestRawBodies(t *testing.T) {
	limiter := bodies.NewRawLimiter(16<<20, 64<<20)
	read := func(operation string, times int) error {
		text := `{"spec":{"operations":[` + strings.Repeat(operation+",", times) + operation + `]}}`
		var read []byte
		var err error
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(text))
		request.Header.Set("Content-Type", jsonType)
		limiter.Limit(func(_ http.ResponseWriter, r *http.Request) { read, err = io.ReadAll(r.Body) }, nil)(httptest.NewRecorder(), request)
		if err == nil && string(read) != text {
			t.Errorf("%d bytes are read of %d", len(read), len(text))
		}
		return err
	}
	if err := read(`{"object":{"a":[`+strings.Repeat(`{},`, 5000)+`{}]}}`, 900); err != nil {
		t.Errorf("what is kept as it was sent: %v", err)
	}
	if err := read(`{}`, 1<<20); !apierrors.IsRequestEntityTooLargeError(err) {
		t.Errorf("a million empty operations: %v", err)
	}
}
