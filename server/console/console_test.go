package console

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

func TestFiles(t *testing.T) {
	get := func(path string, headers ...string) *http.Response {
		t.Helper()
		r := httptest.NewRequest(http.MethodGet, path, nil)
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		ServeHTTP(w, r)
		return w.Result()
	}
	if r := get("/console"); r.StatusCode != http.StatusMovedPermanently || r.Header.Get("Location") != "/console/" {
		t.Errorf("/console: %d %v", r.StatusCode, r.Header)
	}
	page := get("/console/")
	if body, _ := io.ReadAll(page.Body); page.StatusCode != http.StatusOK || !strings.Contains(string(body), "app.js") {
		t.Errorf("the page: %d %s", page.StatusCode, body)
	}
	if policy := page.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
		t.Errorf("policy %q", policy)
	}
	packed := get("/console/app.js", "Accept-Encoding", "gzip")
	if packed.Header.Get("Content-Encoding") != "gzip" || !strings.HasPrefix(packed.Header.Get("Content-Type"), "text/javascript") {
		t.Errorf("packed: %v", packed.Header)
	}
	if r := get("/console/app.js", "Accept-Encoding", "gzip", "If-None-Match", packed.Header.Get("ETag")); r.StatusCode != http.StatusNotModified {
		t.Errorf("unchanged: %d", r.StatusCode)
	}
	if r := get("/console/app.js"); r.Header.Get("ETag") == packed.Header.Get("ETag") || r.Header.Get("Content-Encoding") != "" {
		t.Errorf("plain: %v", r.Header)
	}
	for _, path := range []string{"/console/nonsense", "/console/../console.go", "/console/static/app.js"} {
		if r := get(path); r.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d", path, r.StatusCode)
		}
	}
}

func TestProxy(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Method+" "+r.URL.Path+" cookies:"+r.Header.Get("Cookie"))
	}))
	defer api.Close()
	target, _ := url.Parse(api.URL)
	p := NewProxy("127.0.0.1:1234", target, http.DefaultTransport)
	send := func(method, path string, headers ...string) *http.Response {
		t.Helper()
		r := httptest.NewRequest(method, "http://127.0.0.1:1234"+path, nil)
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		if host := r.Header.Get("Host"); host != "" {
			r.Host = host
		}
		w := httptest.NewRecorder()
		p.ServeHTTP(w, r)
		return w.Result()
	}
	opened := send("GET", strings.TrimPrefix(p.URL(), "http://127.0.0.1:1234"))
	set := opened.Header.Get("Set-Cookie")
	if opened.StatusCode != http.StatusFound || !strings.Contains(set, "HttpOnly") || !strings.Contains(set, "SameSite=Strict") {
		t.Fatalf("open: %d %q", opened.StatusCode, set)
	}
	cookie, _, _ := strings.Cut(set, ";")
	if r := send("POST", "/api", "Cookie", cookie, "Origin", "http://127.0.0.1:1234", "Sec-Fetch-Site", "same-origin"); r.StatusCode != http.StatusOK {
		t.Errorf("own request: %d", r.StatusCode)
	} else if body, _ := io.ReadAll(r.Body); string(body) != "POST /api cookies:" {
		t.Errorf("the server got %q", body)
	}
	if r := send("GET", "/console/", "Cookie", cookie, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"); r.StatusCode != http.StatusOK {
		t.Errorf("following a link: %d", r.StatusCode)
	}
	for name, headers := range map[string][]string{
		"no cookie":         nil,
		"another cookie":    {"Cookie", cookie + "1"},
		"another host":      {"Cookie", cookie, "Host", "evil.example:1234"},
		"another origin":    {"Cookie", cookie, "Origin", "http://127.0.0.1:8080"},
		"an opaque origin":  {"Cookie", cookie, "Origin", "null"},
		"another page's":    {"Cookie", cookie, "Sec-Fetch-Site", "same-site"},
		"a link to the API": {"Cookie", cookie, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"},
	} {
		if r := send("GET", "/api", headers...); r.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %d, want 403", name, r.StatusCode)
		}
	}
	if r := send("GET", "/open?key=nonsense"); r.StatusCode != http.StatusForbidden || r.Header.Get("Set-Cookie") != "" {
		t.Errorf("a wrong key: %d", r.StatusCode)
	}
}
