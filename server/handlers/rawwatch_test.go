package handlers

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
)

// sizedRecorder records the size of each write.
type sizedRecorder struct {
	*httptest.ResponseRecorder
	sizes []int
}

func (r *sizedRecorder) Write(p []byte) (int, error) {
	r.sizes = append(r.sizes, len(p))
	return r.ResponseRecorder.Write(p)
}

// TestEventsAreGathered checks that events of many sizes arrive unchanged, in writes of the maximum size.
func TestEventsAreGathered(t *testing.T) {
	recorder := &sizedRecorder{ResponseRecorder: httptest.NewRecorder()}
	events := &eventWriter{ResponseWriter: recorder}
	var want []byte
	for i := range 100 {
		event := bytes.Repeat([]byte{byte(i)}, i*97)
		if n, err := events.Write(event); n != len(event) || err != nil {
			t.Fatalf("wrote %d of %d bytes: %v", n, len(event), err)
		}
		want = append(want, event...)
	}
	events.Flush()
	if !bytes.Equal(recorder.Body.Bytes(), want) {
		t.Error("the events that arrived differ from those that were written")
	}
	if full := recorder.sizes[:len(recorder.sizes)-1]; slices.Min(full) != bufferSize || slices.Max(full) != bufferSize {
		t.Errorf("the writes have %d bytes, want %d in each except the last", recorder.sizes, bufferSize)
	}
	if err := events.send(); err != nil || events.ready != nil {
		t.Errorf("the buffer is not empty after a flush: %v", err)
	}
	if n, err := events.Write(make([]byte, 3*bufferSize)); n != 3*bufferSize || err != nil || recorder.sizes[len(recorder.sizes)-1] != 3*bufferSize {
		t.Errorf("a large event was split: %d, %v", recorder.sizes, err)
	}
}

// TestLaterTurnsAddNoHeaders checks that the header of a response does not grow while its watch is served.
func TestLaterTurnsAddNoHeaders(t *testing.T) {
	recorder := httptest.NewRecorder()
	w := &turnWriter{ResponseWriter: recorder}
	for range 3 {
		w.Header().Add("Vary", "Accept-Encoding")
		w.WriteHeader(http.StatusOK)
	}
	if got := recorder.Header().Values("Vary"); len(got) != 1 {
		t.Errorf("the header has %q", got)
	}
}
