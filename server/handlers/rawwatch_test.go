package handlers

import (
	"bytes"
	"net/http/httptest"
	"slices"
	"testing"
)

// sizedRecorder notes how much each write has.
type sizedRecorder struct {
	*httptest.ResponseRecorder
	sizes []int
}

func (r *sizedRecorder) Write(p []byte) (int, error) {
	r.sizes = append(r.sizes, len(p))
	return r.ResponseRecorder.Write(p)
}

// TestEventsAreGathered writes events of many sizes: they arrive whole, in writes as large as they may be.
func TestEventsAreGathered(t *testing.T) {
	recorder := &sizedRecorder{ResponseRecorder: httptest.NewRecorder()}
	events := &eventWriter{ResponseWriter: recorder}
	var want []byte
	for i := range 100 {
		event := bytes.Repeat([]byte{byte(i)}, i*97)
		if n, err := events.Write(event); n != len(event) || err != nil {
			t.Fatalf("%d of %d bytes are written: %v", n, len(event), err)
		}
		want = append(want, event...)
	}
	events.Flush()
	if !bytes.Equal(recorder.Body.Bytes(), want) {
		t.Error("the events arrive as others")
	}
	if full := recorder.sizes[:len(recorder.sizes)-1]; slices.Min(full) != bufferSize || slices.Max(full) != bufferSize {
		t.Errorf("the writes have %d bytes, want %d each but for the last", recorder.sizes, bufferSize)
	}
	if err := events.send(); err != nil || events.ready != nil {
		t.Errorf("after a flush there is something left: %v", err)
	}
	if n, err := events.Write(make([]byte, 3*bufferSize)); n != 3*bufferSize || err != nil || recorder.sizes[len(recorder.sizes)-1] != 3*bufferSize {
		t.Errorf("a large event is written in parts: %d, %v", recorder.sizes, err)
	}
}
