// Package console serves a web page that shows the cluster, as it is and as it was, and changes it. What it shows, the browser asks the API for,
// as its user and with that user's rights. Besides static files, it has what a browser can't do: signing in at an issuer, and trials.
package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
)

//go:embed static
var static embed.FS

// Path is where the page is, and below it its files.
const Path = "/console"

// policy lets the page run and show what comes from this server, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

var types = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// file is ready to be sent.
type file struct {
	plain, gzipped    []byte
	contentType, etag string
}

var files = sync.OnceValues(func() (map[string]*file, error) {
	found := map[string]*file{}
	err := fs.WalkDir(static, "static", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := static.ReadFile(name)
		if err != nil {
			return err
		}
		f := &file{plain: content, contentType: types[path.Ext(name)], etag: fmt.Sprintf(`"%x"`, sha256.Sum256(content))[:34] + `"`}
		if f.gzipped, err = compress(content); err != nil {
			return err
		}
		found[strings.TrimPrefix(name, "static")] = f
		return nil
	})
	found["/"] = found["/index.html"]
	return found, err
})

func compress(content []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(content)
	}
	if err == nil {
		err = w.Close()
	}
	return out.Bytes(), err
}

// Serves reports whether a path is one of the page's.
func Serves(path string) bool {
	return path == Path || strings.HasPrefix(path, Path+"/")
}

// ServeHTTP responds with one of the files. They are no secrets: anybody may have them.
func ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	setHeaders(header)
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	if r.URL.Path == Path {
		header.Set("Location", "."+Path+"/") // relative, since the server may be below a path
		w.WriteHeader(http.StatusMovedPermanently)
		return
	}
	served, err := files()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	f := served[strings.TrimPrefix(r.URL.Path, Path)]
	if f == nil {
		http.NotFound(w, r)
		return
	}
	f.send(w, r)
}

func setHeaders(header http.Header) {
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
}

func (f *file) send(w http.ResponseWriter, r *http.Request) {
	header, body := w.Header(), f.plain
	header.Set("Content-Type", f.contentType)
	header.Set("Cache-Control", "no-cache") // a browser asks whether the file has changed, which after an update it has
	header.Add("Vary", "Accept-Encoding")
	etag := f.etag
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		etag, body = strings.TrimSuffix(etag, `"`)+`-gzip"`, f.gzipped
	}
	header.Set("ETag", etag)
	if strings.Contains(r.Header.Get("If-None-Match"), etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	if len(body) != len(f.plain) || etag != f.etag {
		header.Set("Content-Encoding", "gzip")
	}
	header.Set("Content-Length", fmt.Sprint(len(body)))
	if r.Method == http.MethodGet {
		_, _ = w.Write(body)
	}
}
