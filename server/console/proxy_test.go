package console

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// address is where the proxies of these tests would listen.
const address = "http://127.0.0.1:1234"

// keyIn returns the key in a URL of a proxy.
func keyIn(opening string) string {
	parsed, _ := url.Parse(opening)
	return parsed.Query().Get("key")
}

// post sends a key to the proxy as the page with the key does.
func post(p *Proxy, key string) *http.Response {
	r := httptest.NewRequest(http.MethodPost, address+openPath, strings.NewReader(url.Values{"key": {key}}.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w.Result()
}

func TestProxy(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Method+" "+r.URL.Path+" cookies:"+r.Header.Get("Cookie"))
	}))
	defer api.Close()
	target, _ := url.Parse(api.URL)
	p := NewProxy(strings.TrimPrefix(address, "http://"), target, http.DefaultTransport, "")
	send := func(method, path string, headers ...string) *http.Response {
		t.Helper()
		r := httptest.NewRequest(method, address+path, nil)
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
	opened := post(p, keyIn(p.URL(func() {})))
	set := opened.Header.Get("Set-Cookie")
	if opened.StatusCode != http.StatusSeeOther || !strings.Contains(set, "HttpOnly") || !strings.Contains(set, "SameSite=Strict") {
		t.Fatalf("open: %d %q", opened.StatusCode, set)
	}
	cookie, _, _ := strings.Cut(set, ";")
	if r := send("POST", "/api", "Cookie", cookie, "Origin", address, "Sec-Fetch-Site", "same-origin"); r.StatusCode != http.StatusOK {
		t.Errorf("own request: %d", r.StatusCode)
	} else if body, _ := io.ReadAll(r.Body); string(body) != "POST /api cookies:" {
		t.Errorf("the server got %q", body)
	}
	if r := send("GET", "/open?key=nonsense", "Cookie", cookie); r.StatusCode != http.StatusFound {
		t.Errorf("going back to the key: %d", r.StatusCode)
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
}

// TestKeys uses keys twice, too late, wrong ones, and in ways that do not use them.
func TestKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewProxy(strings.TrimPrefix(address, "http://"), &url.URL{}, nil, "")
		done := 0
		first, second := keyIn(p.URL(func() { done++ })), keyIn(p.URL(func() { done++ }))
		refused := func(what string, r *http.Response) {
			t.Helper()
			if body, _ := io.ReadAll(r.Body); r.StatusCode != http.StatusForbidden || r.Header.Get("Set-Cookie") != "" || !strings.Contains(string(body), "Start sqube console again") {
				t.Errorf("%s: %d %s", what, r.StatusCode, body)
			}
		}
		look := func(method, key string) *http.Response {
			w := httptest.NewRecorder()
			p.ServeHTTP(w, httptest.NewRequest(method, address+openPath+"?key="+key, nil))
			return w.Result()
		}
		for _, method := range []string{http.MethodHead, http.MethodGet, http.MethodGet} { // a program that looks at links in advance
			if r := look(method, first); r.StatusCode != http.StatusOK || r.Header.Get("Set-Cookie") != "" {
				t.Errorf("a %s: %d %v", method, r.StatusCode, r.Header)
			}
		}
		if r := look(http.MethodPut, first); r.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("a PUT: %d", r.StatusCode)
		}
		refused("a wrong key", post(p, first+"1"))
		refused("no key", post(p, ""))
		if r := post(p, first); r.StatusCode != http.StatusSeeOther || done != 1 {
			t.Errorf("a key: %d, done %d times", r.StatusCode, done)
		}
		refused("a key that was used", post(p, first))
		refused("the page of a key that was used", look(http.MethodGet, first))
		time.Sleep(keyTime - time.Second)
		if r := look(http.MethodGet, second); r.StatusCode != http.StatusOK {
			t.Errorf("a key before it expires: %d", r.StatusCode)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		refused("a key that has expired", post(p, second))
		if done != 2 {
			t.Errorf("of two keys, %d are done", done)
		}
	})
}
