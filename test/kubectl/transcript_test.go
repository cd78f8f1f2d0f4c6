package kubectl

import (
	"testing"

	"github.com/sqube/sqube/test/harness"
)

func TestTranscriptKeepsItsForm(t *testing.T) {
	const text = `# What there is.

$ kubectl get configmap -o yaml
data:
  a: |
    1

    2

$ kubectl get nothing |
> cat
error
[exit 1]

# The end.
# Really.

$ true
`
	steps, err := parse(text)
	harness.Must(t, err)
	if len(steps) != 3 || steps[0].output != "data:\n  a: |\n    1\n\n    2" || steps[1].command != "kubectl get nothing |\ncat" || steps[2].output != "" {
		t.Errorf("parsed as %+v", steps)
	}
	if got := steps.String(); got != text {
		t.Errorf("written as\n%s", got)
	}
	if _, err := parse("no command"); err == nil {
		t.Error("text that is not a transcript parses")
	}
}

func TestNormalizeReplacesOnlyWhatVaries(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"NAME  AGE  IP\nweb   5s   <none>\ndb    2m3s   <none>", "NAME  AGE  IP\nweb   <age>   <none>\ndb    <age>   <none>"},
		{"period=5s  10m", "period=5s  10m"},
		{`resourceVersion: "12"`, `resourceVersion: "<version>"`},
		{"Created: Sat, 21 Nov 2026 02:50:08 +0000", "Created: <time>"},
		{"/tmp/x/file at https://127.0.0.1:6443/api", "<dir>/file at <server>/api"},
	} {
		if got := normalize(c.in, "/tmp/x"); got != c.want {
			t.Errorf("normalize(%q) = %q, want %q", c.in, got, c.want)
		}
	}
	if !same("a    b", "a  b") || same("  a", "a") {
		t.Error("only the gaps between columns may differ")
	}
}
