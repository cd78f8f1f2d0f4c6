package handlers

import (
	"bytes"
	"net/http"
	"slices"

	"github.com/klauspost/compress/gzip"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"github.com/sqube/sqube/server/codecs"
	"github.com/sqube/sqube/sqlstore/apistorage"
)

// gzipFrom is the minimum size, in bytes, of responses that are compressed for clients that accept it, like upstream.
const gzipFrom = 128 << 10

// gzipped compresses the long responses of a handler for clients that accept gzip, in place of upstream's response writer and
// with an encoder that is faster than Go's.
func gzipped(handler http.HandlerFunc) http.HandlerFunc {
	if !utilfeature.DefaultFeatureGate.Enabled(features.APIResponseCompression) {
		return handler
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if !codecs.AcceptsGzip(r) {
			handler(w, r)
			return
		}
		plain := *r
		plain.Header = r.Header.Clone()
		plain.Header.Del("Accept-Encoding")
		response := &gzipResponse{ResponseWriter: w, code: http.StatusOK}
		// Not after a panic: an aborted response must not look complete.
		handler(response, &plain)
		response.end()
	}
}

// gzipResponse buffers the beginning of a response until it is long enough to be compressed, or ends.
type gzipResponse struct {
	http.ResponseWriter
	code  int
	begin []byte
	gzip  *gzip.Writer // nil until the response is long enough
}

func (g *gzipResponse) WriteHeader(code int) { g.code = code }

func (g *gzipResponse) Write(p []byte) (int, error) {
	if g.gzip == nil {
		if len(g.begin)+len(p) <= gzipFrom {
			g.begin = append(g.begin, p...)
			return len(p), nil
		}
		g.Header().Set("Content-Encoding", "gzip")
		g.Header().Add("Vary", "Accept-Encoding")
		g.ResponseWriter.WriteHeader(g.code)
		g.gzip = apistorage.GzipWriters.Get().(*gzip.Writer)
		g.gzip.Reset(g.ResponseWriter)
		if _, err := g.gzip.Write(g.begin); err != nil {
			return 0, err
		}
		g.begin = nil
	}
	return g.gzip.Write(p)
}

// Unwrap lets http.ResponseController reach the underlying writer.
func (g *gzipResponse) Unwrap() http.ResponseWriter { return g.ResponseWriter }

// end sends the rest. The http.Server notices if it can't be sent.
func (g *gzipResponse) end() {
	if g.gzip == nil {
		g.ResponseWriter.WriteHeader(g.code)
		_, _ = g.ResponseWriter.Write(g.begin)
		return
	}
	_ = g.gzip.Close()
	g.gzip.Reset(nil)
	apistorage.GzipWriters.Put(g.gzip)
}

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
