package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sqube/sqube/test/compare/differences"
	"github.com/sqube/sqube/test/harness"
)

// enough is the minimum number of requests in the scripts.
const enough = 300

func TestScripts(t *testing.T) {
	scripts, err := readScripts("testdata", regexp.MustCompile(""))
	harness.Must(t, err)
	total := 0
	titles := map[string]bool{}
	for _, s := range scripts {
		total += len(s.requests)
		captured := variables{"namespace": ""}
		for _, r := range s.requests {
			titles[s.name+"/"+r.title] = true
			if r.method == "" {
				t.Errorf("%s.http:%d: no request", s.name, r.line)
			}
			for _, use := range variable.FindAllStringSubmatch(r.path+r.body, -1) {
				if _, ok := captured[use[1]]; !ok {
					t.Errorf("%s.http:%d: {{%s}} has not been captured", s.name, r.line, use[1])
				}
			}
			for _, c := range r.captures {
				captured[c[0]] = ""
			}
		}
	}
	if total < enough {
		t.Errorf("the scripts have %d requests instead of at least %d", total, enough)
	}
	explained, err := differences.Read("differences.txt")
	harness.Must(t, err)
	for _, d := range explained {
		found := d.Surface()
		for title := range titles {
			found = found || d.Matches(title)
		}
		if !found {
			t.Errorf("differences.txt:%d: %s does not match any request in the scripts", d.Line, d.Pattern)
		}
	}
}

func TestParse(t *testing.T) {
	got, err := parse("# What it is about.\n### one\nPOST /a?b={{c}}\nAccept: x\n@v = metadata.name\n@body = cbor\n\n{\n\n}\n### two\nGET /b\n@until = 404\n### {{x}} as {{y}}\nGET /{{x}}\nAccept: {{y}}\n@for x = c | d\n@for y = 1 |\n")
	harness.Must(t, err)
	want := []request{
		{line: 2, title: "one", method: "POST", path: "/a?b={{c}}", headers: [][2]string{{"Accept", "x"}}, captures: [][2]string{{"v", "metadata.name"}}, encoding: "cbor", body: "{\n\n}\n"},
		{line: 11, title: "two", method: "GET", path: "/b", until: 404},
		{line: 14, title: "c as 1", method: "GET", path: "/c", headers: [][2]string{{"Accept", "1"}}, each: []choice{}},
		{line: 14, title: "c as ", method: "GET", path: "/c", headers: [][2]string{{"Accept", ""}}, each: []choice{}},
		{line: 14, title: "d as 1", method: "GET", path: "/d", headers: [][2]string{{"Accept", "1"}}, each: []choice{}},
		{line: 14, title: "d as ", method: "GET", path: "/d", headers: [][2]string{{"Accept", ""}}, each: []choice{}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(request{})); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"###\nGET /", "### a\nGET /\n### a\nGET /", "### a\nGET", "### a\nGET /\nAccept", "### a\nGET /\n@body = xml", "### a\nGET /\n@until = soon", "### a\nGET /\n@for x = 1 | 2"} {
		if got, err := parse(bad); err == nil {
			t.Errorf("%q is parsed as %v", bad, got)
		}
	}
}

// Generated values are replaced by names; all others stay, so that differences
// show.
func TestNormal(t *testing.T) {
	a := answer{code: 200, vars: variables{"version": "12345", "short": "1"}, documents: []any{map[string]any{
		"kind":     "ConfigMap",
		"metadata": map[string]any{"generateName": "a-", "name": "a-x7z2p", "uid": "11111111-2222-3333-4444-555555555555", "resourceVersion": "77", "creationTimestamp": "2026-11-21T10:00:00Z"},
		"data":     map[string]any{"a": "1", "of": "revision 12345"},
	}}}
	got := a.String()
	for _, part := range []string{`"name": "a-{random}"`, `"uid": "{uid}"`, `"resourceVersion": "{resourceVersion}"`, `"creationTimestamp": "{time}"`, `"a": "1"`, `"revision {{version}}"`} {
		if !strings.Contains(got, part) {
			t.Errorf("no %s in\n%s", part, got)
		}
	}
}

// Only the named fields may differ, and those that do not are reported.
func TestExplain(t *testing.T) {
	of := func(code int, vary, manager, data string) answer {
		return answer{code: code, headers: []string{"Date", "Vary: " + vary}, documents: []any{map[string]any{
			"metadata": map[string]any{"managedFields": []any{map[string]any{"manager": manager, "operation": "Update"}}}, "data": data,
		}}}
	}
	want := of(500, "Accept", "kube-apiserver", "a")
	for _, test := range []struct {
		fields string
		got    answer
		reason string
		used   []bool
	}{
		{"metadata.managedFields.manager", of(500, "Accept", "sqube", "a"), "so", []bool{true}},
		{"metadata.managedFields.manager", of(500, "Accept", "sqube", "b"), "", []bool{false}},
		{"metadata.managedFields.manager, Vary:, HTTP", of(400, "Accept", "sqube", "a"), "so", []bool{true, false, true}},
		{"HTTP, body", of(400, "Accept", "sqube", "b"), "so", []bool{true, true}},
		{"Vary:", of(500, "Origin", "sqube", "a"), "", []bool{false}},
	} {
		path := filepath.Join(t.TempDir(), "differences.txt")
		harness.Must(t, os.WriteFile(path, []byte("a/* ["+test.fields+"] -- so\n"), 0o600))
		all, err := differences.Read(path)
		harness.Must(t, err)
		if reason := explain(all, "a", "b", want, test.got); reason != test.reason {
			t.Errorf("%s: the reason is %q instead of %q", test.fields, reason, test.reason)
		}
		for i, f := range all[0].Fields {
			if f.Used != test.used[i] {
				t.Errorf("%s: %s is used: %v", test.fields, f.Name, f.Used)
			}
		}
	}
}
