package handlers

import (
	"bytes"
	"net/http"
	"slices"

	"github.com/sqube/sqube/server/codecs"
)

// bufferedResponse buffers a response with one of the given status codes, to be sent or replaced later. Other responses pass
// through.
type bufferedResponse struct {
	http.ResponseWriter
	codes []int // to buffer
	code  int   // of the buffered response; 0 if there is none
	body  bytes.Buffer
}

func (b *bufferedResponse) WriteHeader(code int) {
	if slices.Contains(b.codes, code) {
		b.code = code
		return
	}
	b.ResponseWriter.WriteHeader(code)
}

func (b *bufferedResponse) Write(data []byte) (int, error) {
	if b.code != 0 {
		return b.body.Write(data)
	}
	return b.ResponseWriter.Write(data)
}

// send sends the buffered response.
func (b *bufferedResponse) send() {
	b.ResponseWriter.WriteHeader(b.code)
	_, _ = b.ResponseWriter.Write(b.body.Bytes()) // fails only if the client has disconnected
}

// replace sends an error instead of the buffered response.
func (b *bufferedResponse) replace(err error, r *http.Request) {
	for _, name := range []string{"Content-Type", "Content-Encoding", "Content-Length"} {
		b.Header().Del(name)
	}
	codecs.WriteError(b.ResponseWriter, r, err)
}

// Unwrap lets http.ResponseController reach the underlying writer.
func (b *bufferedResponse) Unwrap() http.ResponseWriter { return b.ResponseWriter }
