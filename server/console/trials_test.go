package console

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/harness"
)

// program returns trials whose program is a shell script.
func program(t *testing.T, script string) *Trials {
	t.Helper()
	file := filepath.Join(t.TempDir(), "sqube")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	return &Trials{Program: file, Kubeconfig: func(*http.Request) ([]byte, error) { return []byte("a kubeconfig\n"), nil }}
}

func ask(ctx context.Context, trials *Trials, method, path, body string) (code int, answer string) {
	w := httptest.NewRecorder()
	trials.ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body)))
	text, _ := io.ReadAll(w.Result().Body)
	var status metav1.Status
	if json.Unmarshal(text, &status) == nil && status.Message != "" {
		return w.Code, status.Message
	}
	return w.Code, strings.TrimSpace(string(text))
}

const someChange = `{"spec":{"operations":[]},"for":"10m","namespace":"shop"}`

func TestTrials(t *testing.T) {
	for name, test := range map[string]struct {
		script, method, path, body string
		code                       int
		answer                     string
	}{
		"the result, whatever the exit code": {`grep -q "a kubeconfig" "$5" && cat >/dev/null && echo '{"verdict":"NotAtRest"}'; exit 1`, "POST", TrialsPath, someChange, 200, `{"verdict":"NotAtRest"}`},
		"how it is called":                   {`shift 5; echo "{\"arguments\":\"$*\",\"input\":$(cat)}"`, "POST", TrialsPath, someChange, 200, `{"arguments":"-f - --for 10m0s --only-namespaces shop","input":{"apiVersion":"history.sqube.io/v1alpha1","kind":"Transaction","metadata":{"name":"console"},"spec":{"operations":[]}}}`},
		"no result":                          {`echo "a line" >&2; echo "sqube: the reason" >&2; exit 2`, "POST", TrialsPath, someChange, 422, "this could not be tried: the reason"},
		"no change":                          {"", "POST", TrialsPath, "nonsense", 400, "the change to try: invalid character 'o' in literal null (expecting 'u')"},
		"whether there are trials":           {"", "GET", TrialsPath, "", 200, `{"refused":""}`},
		"YAML":                               {"", "POST", ObjectsPath, "kind: A\n---\nkind: BList\nitems: [{kind: B}]\n", 200, `{"objects":[{"kind":"A"},{"kind":"B"}]}`},
		"no YAML":                            {"", "POST", ObjectsPath, "a: [", 400, "this is no YAML: error converting YAML to JSON: yaml: line 1: did not find expected node content"},
		"another verb":                       {"", "DELETE", TrialsPath, "", 405, ""},
	} {
		t.Run(name, func(t *testing.T) {
			code, answer := ask(t.Context(), program(t, test.script), test.method, test.path, test.body)
			if code != test.code || test.answer != "" && answer != test.answer {
				t.Errorf("%d %s", code, answer)
			}
		})
	}
	if code, answer := ask(t.Context(), &Trials{}, "GET", TrialsPath, ""); code != 404 || !strings.Contains(answer, "--console-try=false") {
		t.Errorf("without a program: %d %s", code, answer)
	}
}

// TestTrialEnds has a page that goes away while its trial runs.
func TestTrialEnds(t *testing.T) {
	folder := t.TempDir()
	trials := program(t, "echo $$ >"+folder+"/part && mv "+folder+"/part "+folder+"/pid; exec sleep 1000")
	ctx, leave := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		ask(ctx, trials, "POST", TrialsPath, someChange)
		close(ended)
	}()
	var pid []byte
	harness.Eventually(t, "the trial runs", func() bool {
		pid, _ = os.ReadFile(filepath.Join(folder, "pid"))
		return pid != nil
	})
	if code, answer := ask(t.Context(), trials, "POST", TrialsPath, someChange); code != http.StatusTooManyRequests {
		t.Errorf("a second trial at the same time: %d %s", code, answer)
	}
	leave()
	<-ended // which waits for the process
	if code, answer := ask(t.Context(), program(t, "echo {}"), "POST", TrialsPath, someChange); code != 200 {
		t.Errorf("the next one: %d %s", code, answer)
	}
}
