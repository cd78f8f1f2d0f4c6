package console

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
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
	if r := get("/console"); r.StatusCode != http.StatusMovedPermanently || r.Header.Get("Location") != "./console/" {
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

// TestImports follows the imports of the scripts: none leads back to where it begins.
func TestImports(t *testing.T) {
	served, err := files()
	if err != nil {
		t.Fatal(err)
	}
	imports := regexp.MustCompile(`(?m)^import .*from '\./(.*)';$`)
	const following, followed = 1, 2
	state := map[string]int{}
	var follow func(path []string)
	follow = func(path []string) {
		name := path[len(path)-1]
		script := served["/"+name]
		if script == nil {
			t.Errorf("%s does not exist", strings.Join(path, " imports "))
			return
		}
		if state[name] == following {
			t.Errorf("%s", strings.Join(path, " imports "))
		}
		if state[name] != 0 {
			return
		}
		state[name] = following
		for _, found := range imports.FindAllSubmatch(script.plain, -1) {
			follow(append(slices.Clone(path), string(found[1])))
		}
		state[name] = followed
	}
	for _, root := range []string{"app.js", "signedin.js"} {
		follow([]string{root})
	}
	for name := range served {
		if script := strings.TrimPrefix(name, "/"); strings.HasSuffix(script, ".js") && state[script] != followed {
			t.Errorf("nothing imports %s", script)
		}
	}
}
