package serve

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/harness/sqube"
)

// TestLogJSON checks that everything on standard error is one JSON object per line, including the messages of the Kubernetes
// libraries and the error that ends a start.
func TestLogJSON(t *testing.T) {
	t.Parallel()
	s := serve(t, []string{"--logging-format", "json", "-v", "4"})
	if _, err := client(t, s.Kubeconfig).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	// A failing handshake, which net/http logs.
	if _, err := http.Get(strings.Replace(s.URL, "https", "http", 1)); err != nil {
		t.Fatal(err)
	}
	refused := sqube.Command(t, serveArgs(t, s.DataDir, "--logging-format", "json"))
	if code := refused.Code(t); code != 1 {
		t.Errorf("a second server ended with code %d", code)
	}
	settle(t, s)
	s.Stop(t)

	levels := map[string]int{}
	for _, r := range records(t, s.Log(t)) {
		levels[r.Level]++
	}
	if levels["INFO"] < 4 || levels["DEBUG"] == 0 || levels["ERROR"] != 0 {
		t.Errorf("levels: %v", levels)
	}
	got := records(t, refused.Log(t))
	if len(got) != 1 || got[0].Level != "ERROR" || !strings.Contains(got[0].Msg, "the database is in use by another sqube") {
		t.Errorf("a second server wrote %v", got)
	}
}

// record is one line of the log.
type record struct {
	Time       time.Time
	Level, Msg string

	Flag, Because, Hint, Folder string // of warnings about flags
}

func records(t *testing.T, text string) (records []record) {
	t.Helper()
	for _, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		var r record
		if err := json.Unmarshal([]byte(line), &r); err != nil || r.Time.IsZero() || r.Level == "" || r.Msg == "" {
			t.Errorf("not a record: %q, %v", line, err)
		}
		records = append(records, r)
	}
	return records
}
