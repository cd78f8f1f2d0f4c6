package surface_test

import (
	"database/sql"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/sqube/sqube/server"
	"github.com/sqube/sqube/server/bootstrap"
	"github.com/sqube/sqube/server/servertest"
	"github.com/sqube/sqube/test/harness"
)

const defaultsFile = "../../server/bootstrap/defaults.tsv"

var writeDefaults = flag.Bool("write", false, "write "+defaultsFile+" with what requests lead to")

// TestDefaults checks that the objects with which servers begin are those to which requests lead.
func TestDefaults(t *testing.T) {
	bare := func(o *server.Options) { o.Features.EnablePriorityAndFairness = false }
	audited := func(o *server.Options) {
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.Audit.AddFlags(flags)
		policy := filepath.Join(t.TempDir(), "policy")
		harness.Must(t, os.WriteFile(policy, []byte(`{"apiVersion":"audit.k8s.io/v1","kind":"Policy","rules":[{"level":"None"}]}`), 0o600))
		harness.Must(t, flags.Parse([]string{"--audit-log-path=" + policy + ".log", "--audit-policy-file=" + policy}))
	}
	with := storedDefaults(t, servertest.Options{Configure: audited}, true)
	alone := storedDefaults(t, servertest.Options{NoControllers: true, Configure: func(o *server.Options) { audited(o); bare(o) }}, false)

	var lines []string
	for _, key := range slices.Sorted(maps.Keys(with)) {
		if with[key] == alone[key] {
			lines = append(lines, bootstrap.Always+"\t"+key+"\t"+with[key]+"\n")
		} else {
			lines = append(lines, bootstrap.Completed+"\t"+key+"\t"+with[key]+"\n", bootstrap.Bare+"\t"+key+"\t"+alone[key]+"\n")
		}
	}
	if *writeDefaults {
		harness.Must(t, os.WriteFile(defaultsFile, []byte(strings.Join(lines, "")), 0o644))
		return
	}
	file, err := os.ReadFile(defaultsFile)
	harness.Must(t, err)
	if got := slices.Collect(strings.Lines(string(file))); !slices.Equal(got, lines) {
		t.Errorf("%s is not what requests lead to: run go generate ./server/bootstrap", defaultsFile)
	}
	compareDefaults(t, storedDefaults(t, servertest.Options{}, true), with)
	compareDefaults(t, storedDefaults(t, servertest.Options{NoControllers: true, Configure: bare}, false), alone)
}

func compareDefaults(t *testing.T, got, want map[string]string) {
	t.Helper()
	for key := range want {
		if got[key] != want[key] {
			t.Errorf("%s is stored as\n%s\ninstead of\n%s", key, got[key], want[key])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d default objects are stored instead of %d", len(got), len(want))
	}
}

var times = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

// storedDefaults returns the default objects of a new server by group, resource and key, with marks for what differs between servers.
// completed waits until controllers have completed them.
func storedDefaults(t *testing.T, o servertest.Options, completed bool) map[string]string {
	s := servertest.Run(t, o)
	var rows map[string]string
	folder, n, steady := t.TempDir(), 0, 0
	harness.Eventually(t, "the default objects are complete", func() bool {
		n++
		saved := filepath.Join(folder, fmt.Sprint(n))
		harness.Must(t, s.Save(saved))
		before := rows
		rows = defaultRows(t, saved)
		pending := 0 // without what controllers add
		for key, row := range rows {
			if strings.Contains(key, "\tflowschemas\t") && !strings.Contains(row, `"type":"Dangling"`) ||
				strings.Contains(row, `"aggregationRule":`) && !strings.Contains(row, `"manager":"clusterrole-aggregation-controller"`) {
				pending++
			}
		}
		if steady++; pending > 0 && completed || !maps.Equal(rows, before) {
			steady = 0
		}
		return steady >= 10 && len(rows) > 180
	})
	return rows
}

func defaultRows(t *testing.T, file string) map[string]string {
	db, err := sql.Open("sqlite", file)
	harness.Must(t, err)
	defer db.Close()
	found, err := db.QueryContext(t.Context(), `SELECT api_group, resource, key, uid, labels, fields, value FROM log WHERE replaced_by IS NULL AND resource IN
		('apiservices', 'clusterrolebindings', 'clusterroles', 'flowschemas', 'namespaces', 'priorityclasses', 'prioritylevelconfigurations', 'rolebindings', 'roles')`)
	harness.Must(t, err)
	defer found.Close()
	rows := map[string]string{}
	for found.Next() {
		var group, resource, key, uid, labels, fields, value string
		harness.Must(t, found.Scan(&group, &resource, &key, &uid, &labels, &fields, &value))
		value = strings.ReplaceAll(value, uid, bootstrap.UIDMark)
		value = times.ReplaceAllLiteralString(value, bootstrap.TimeMark)
		value = strings.ReplaceAll(value, `"manager":"`+filepath.Base(os.Args[0])+`"`, `"manager":"`+bootstrap.ProgramMark+`"`)
		rows[group+"\t"+resource+"\t"+key] = labels + "\t" + fields + "\t" + value
	}
	harness.Must(t, found.Err())
	return rows
}
