package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sqube/sqube/server/query"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestQuery asks in SQL for what is stored: on both engines, in memory, and through a pooler.
func TestQuery(t *testing.T) {
	t.Parallel()
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		t.Parallel()
		testQuery(t, engine.Name, "--datastore", engine.Datastore)
	})
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		testQuery(t, "sqlite", "--in-memory")
	})
	t.Run("pgbouncer", func(t *testing.T) {
		t.Parallel()
		testQuery(t, "pooled postgres", "--datastore", harness.PgBouncer(t, harness.Postgres(t)))
	})
}

func testQuery(t *testing.T, engine string, flags ...string) {
	s := serve(t, flags)
	f := &questions{t: t, s: s, admin: client(t, s.Kubeconfig), timeout: 30}
	var pooled bool
	if f.engine, pooled = strings.CutPrefix(engine, "pooled "); pooled {
		f.timeout = 3 // which ends queries, not their clients
	}
	for i := range 3 {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("asked-%d", i)}, Data: map[string]string{"n": fmt.Sprint(i)}}
		_, err := f.admin.CoreV1().ConfigMaps("default").Create(t.Context(), object, metav1.CreateOptions{FieldManager: "asker"})
		harness.Must(t, err)
	}
	harness.Must(t, f.admin.CoreV1().ConfigMaps("default").Delete(t.Context(), "asked-2", metav1.DeleteOptions{}))
	f.answers()
	f.limits()
	f.refusals()
	f.rights()
}

// questions is a server that is asked questions.
type questions struct {
	t      *testing.T
	s      *sqube.Server
	admin  kubernetes.Interface
	engine string
	// timeout is the limit of queries whose clients go away, in seconds.
	timeout int64
}

func (f *questions) ask(ctx context.Context, spec query.Spec) (answer query.Status, err error) {
	body, err := json.Marshal(map[string]any{"apiVersion": "history.sqube.io/v1alpha1", "kind": "Query", "spec": spec})
	harness.Must(f.t, err)
	result := f.admin.CoreV1().RESTClient().Post().AbsPath("/apis/history.sqube.io/v1alpha1/queries").Body(body).SetHeader("Content-Type", "application/json").MaxRetries(0).Do(ctx)
	raw, _ := result.Raw()
	if err = result.Error(); err == nil {
		var whole struct{ Status query.Status }
		harness.Must(f.t, json.Unmarshal(raw, &whole))
		answer = whole.Status
	}
	return answer, err
}

// rows returns the rows of an answer as text.
func (f *questions) rows(sql string) string {
	f.t.Helper()
	answer, err := f.ask(f.t.Context(), query.Spec{SQL: sql})
	harness.Must(f.t, err)
	text, err := json.Marshal(answer.Rows)
	harness.Must(f.t, err)
	return string(text)
}

func (f *questions) answers() {
	t := f.t
	blob := map[string]string{"sqlite": "x'00ff'", "postgres": `'\x00ff'::bytea`}[f.engine]
	for sql, want := range map[string]string{
		"SELECT name, user_name = 'admin', field_manager FROM objects WHERE name LIKE 'asked%' ORDER BY name": map[string]string{
			"sqlite": `[["asked-0",0,"asker"],["asked-1",0,"asker"]]`, "postgres": `[["asked-0",false,"asker"],["asked-1",false,"asker"]]`}[f.engine],
		"-- what happened\nSELECT operation, name FROM history WHERE name = 'asked-2' ORDER BY resource_version;": `[["create","asked-2"],["delete","asked-2"]]`,
		"WITH n AS (SELECT count(*) AS n FROM history WHERE name = 'asked-2') SELECT n, n FROM n":                 `[[2,2]]`,
		"VALUES (1, 'a;b', NULL), (2, '--', NULL)":                                                                `[[1,"a;b",null],[2,"--",null]]`,
		"SELECT 1.5, " + blob + ", 9007199254740993":                                                              `[[1.5,"AP8=",9007199254740992]]`,
		"SELECT count(*) > 0 FROM log, counter WHERE revision > 0":                                                map[string]string{"sqlite": `[[1]]`, "postgres": `[[true]]`}[f.engine],
	} {
		if got := f.rows(sql); got != want {
			t.Errorf("%s: %s, want %s", sql, got, want)
		}
	}
	at := f.rows("SELECT written_at FROM history WHERE name = 'asked-0'")
	if _, err := time.Parse(`[["2006-01-02T15:04:05.000Z"]]`, at); err != nil {
		t.Error(err)
	}
	value := map[string]string{"sqlite": "value ->> '$.data.n'", "postgres": "value -> 'data' ->> 'n'"}[f.engine]
	if got := f.rows("SELECT " + value + " FROM objects WHERE name = 'asked-1'"); got != `[["1"]]` {
		t.Errorf("in the value: %s", got)
	}
	if got := f.rows(map[string]string{"sqlite": "EXPLAIN QUERY PLAN ", "postgres": "EXPLAIN ANALYZE "}[f.engine] + "SELECT * FROM objects"); !strings.Contains(got, "log") {
		t.Errorf("the plan is %s", got)
	}
	file := filepath.Join(t.TempDir(), "q.yaml")
	harness.Must(t, os.WriteFile(file, []byte("apiVersion: history.sqube.io/v1alpha1\nkind: Query\nspec:\n  sql: SELECT 42 AS answer\n"), 0o600))
	if out := kubectlPrints(t, f.s.Kubeconfig, "create", "-f", file, "-o", "jsonpath={.status.columns} {.status.rows}"); out != `["answer"] [[42]]` {
		t.Errorf("kubectl prints %s", out)
	}
}

const endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i > 0) SELECT "

func (f *questions) limits() {
	t, ctx := f.t, f.t.Context()
	for cut, spec := range map[string]query.Spec{
		"there are more than 2 rows":    {SQL: "SELECT i FROM (VALUES (1), (2), (3)) AS v(i)", MaxRows: 2},
		"there are more than 1000 rows": {SQL: endless + "i FROM n"},
		"the rows have more than 4 MiB": {SQL: endless + "(SELECT value FROM objects WHERE resource = 'flowschemas' LIMIT 1) FROM n", MaxRows: 10_000},
	} {
		if f.engine == "sqlite" {
			spec.SQL = strings.Replace(spec.SQL, "SELECT i FROM (VALUES (1), (2), (3)) AS v(i)", "VALUES (1), (2), (3)", 1)
		} else if strings.HasPrefix(spec.SQL, endless) { // Postgres sends what it has when a buffer is full
			spec.SQL = strings.Replace(spec.SQL, "WHERE i > 0", "WHERE i < 1000000", 1)
		}
		answer, err := f.ask(ctx, spec)
		if err != nil || answer.Cut != cut || len(answer.Rows) == 0 {
			t.Errorf("%s: %d rows, cut %q, %v; want %q", spec.SQL, len(answer.Rows), answer.Cut, err, cut)
		}
	}
	answer, err := f.ask(ctx, query.Spec{SQL: "VALUES (1), (2)", MaxRows: 2})
	if err != nil || answer.Cut != "" || len(answer.Rows) != 2 {
		t.Errorf("all rows: %+v, %v", answer, err)
	}
	// One row is there at once, and there is no second one.
	second := "SELECT 1 UNION ALL SELECT * FROM (" + endless + "i FROM n WHERE i < 0) AS x"
	if f.engine == "sqlite" {
		second = strings.Replace(second, ") AS x", ")", 1)
	}
	for _, sql := range []string{endless + "count(*) FROM n", second} {
		if _, err := f.ask(ctx, query.Spec{SQL: sql, TimeoutSeconds: 1}); !apierrors.IsTimeout(err) || !strings.Contains(err.Error(), "longer than 1 seconds") {
			t.Errorf("%s: %v", sql, err)
		}
	}
	// A column is shorter than what a row may have, and the row is not.
	long := map[string]string{"sqlite": "hex(zeroblob(1500000))", "postgres": "repeat('x', 3000000)"}[f.engine]
	wide := "SELECT i, " + strings.Repeat("CASE WHEN i > 1 THEN "+long+" END, ", 3) + "i FROM (SELECT 1 AS i UNION ALL SELECT 2) AS v"
	if answer, err := f.ask(ctx, query.Spec{SQL: wide}); err != nil || len(answer.Rows) != 1 || answer.Cut != "after these rows, a row has more than 8 MiB" {
		t.Errorf("a wide row: %d rows, cut %q, %v", len(answer.Rows), answer.Cut, err)
	}
	big := map[string]string{"sqlite": "SELECT length(zeroblob(100000000))", "postgres": "SELECT repeat('x', 100000000)"}[f.engine]
	if _, err := f.ask(ctx, query.Spec{SQL: big}); !apierrors.IsInvalid(err) {
		t.Errorf("a row of 100 MB: %v", err)
	}
	for _, spec := range []query.Spec{{}, {SQL: "SELECT 1", MaxRows: 10_001}, {SQL: "SELECT 1", TimeoutSeconds: 31}, {SQL: "SELECT 1", MaxRows: -1}} {
		if _, err := f.ask(ctx, spec); !apierrors.IsInvalid(err) {
			t.Errorf("%+v: %v", spec, err)
		}
	}
	f.atOnce()
}

// atOnce has two queries run until their clients go away. Meanwhile a third is refused, and objects are written.
func (f *questions) atOnce() {
	t := f.t
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			for { // the third may have been first
				if _, err := f.ask(ctx, query.Spec{SQL: endless + "count(*) FROM n", TimeoutSeconds: f.timeout}); !apierrors.IsTooManyRequests(err) {
					return
				}
			}
		})
	}
	harness.Eventually(t, "a third query is refused", func() bool {
		_, err := f.ask(t.Context(), query.Spec{SQL: "SELECT 1"})
		return apierrors.IsTooManyRequests(err)
	})
	_, err := f.admin.CoreV1().ConfigMaps("default").Patch(t.Context(), "asked-0", "application/merge-patch+json", []byte(`{"data":{"written":"meanwhile"}}`), metav1.PatchOptions{})
	harness.Must(t, err)
	cancel()
	group.Wait()
	harness.Eventually(t, "queries are answered once others' clients are gone", func() bool {
		_, err := f.ask(t.Context(), query.Spec{SQL: "SELECT 1"})
		return err == nil
	})
}

// refusals asks for what must not be: nothing of it is there afterwards.
func (f *questions) refusals() {
	t := f.t
	const state = "SELECT (SELECT count(*) FROM log WHERE name LIKE 'asked%'), (SELECT compacted FROM counter) IS NULL"
	before := f.rows(state)
	file := filepath.Join(t.TempDir(), "written")
	statements := map[string]string{ // what is wrong with it, by statement
		"DELETE FROM log": "may be one SELECT", "UPDATE counter SET revision = 0": "may be one SELECT", "INSERT INTO log DEFAULT VALUES": "may be one SELECT",
		"DROP VIEW history": "may be one SELECT", "CREATE TABLE t (a int)": "may be one SELECT", "BEGIN": "may be one SELECT", "COMMIT": "may be one SELECT",
		"EXPLAIN DELETE FROM log": "may be one SELECT", "/* SELECT */ DROP TABLE log": "may be one SELECT", "REINDEX": "may be one SELECT", "VACUUM": "may be one SELECT",
		"SELECT 1; SELECT 2": "", "SELECT 1; DELETE FROM log": "", "SELECT 1; END; DROP TABLE log": "", "SELEC": "may be one SELECT", "SELECT FROM WHERE": "syntax error",
		"SELECT * FROM nothing": "nothing", "WITH d AS (SELECT 1) DELETE FROM log": "", "WITH d AS (DELETE FROM log RETURNING id) SELECT * FROM d": "",
	}
	specific := map[string]map[string]string{
		"sqlite": {
			"ATTACH '" + file + "' AS x": "may be one SELECT", "PRAGMA query_only = 0": "may be one SELECT", "EXPLAIN PRAGMA query_only = 0": "may be one SELECT",
			"VACUUM INTO '" + file + "'": "may be one SELECT", "SELECT load_extension('x')": "", "SELECT writefile('" + file + "', 'x')": "no such function",
			"SELECT * FROM pragma_journal_mode('delete')": "prohibited", "SELECT count(*) FROM pragma_table_info('log')": "not authorized", "SELECT data FROM sqlite_dbpage": "prohibited",
			"SELECT * FROM dbstat": "prohibited", "SELECT sql FROM sqlite_schema": "prohibited", "SELECT * FROM schema_migrations": "prohibited", "SELECT 1 /* /* */ ; DELETE FROM log; */": "more than one statement",
		},
		"postgres": {
			"COPY log TO '" + file + "'": "may be one SELECT", "COPY log TO PROGRAM 'touch " + file + "'": "may be one SELECT", "DO $$ BEGIN DELETE FROM log; END $$": "may be one SELECT",
			"SET ROLE postgres": "may be one SELECT", "SELECT * INTO t FROM log": "", "SELECT * FROM log FOR UPDATE": "read-only",
			"EXPLAIN ANALYZE SELECT pg_sleep(60)": "pg_sleep may not be used", "SELECT set_config('transaction_read_only', 'off', false)": "set_config",
			"SELECT U&\"set\\005fconfig\"('statement_timeout', '0', false)": "set_config", "SELECT pg_advisory_lock(1)": "pg_advisory_lock",
			"SELECT lo_import('/etc/passwd')": "lo_import", "SELECT lo_from_bytea(0, 'x')": "lo_from_bytea", "SELECT pg_read_file('/etc/passwd')": "pg_read_file",
			"SELECT pg_terminate_backend(pid) FROM pg_stat_activity": "pg_terminate_backend", "SELECT query_to_xml('delete from log', true, true, '')": "query_to_xml",
			"SELECT table_to_xml('pg_authid', true, true, '')": "table_to_xml", "SELECT fmgr_c_validator(1)": "fmgr_c_validator", "SELECT txid_current()": "txid_current", "SELECT query FROM pg_stat_activity": "pg_stat_activity is not one of objects",
			"SELECT * FROM log, LATERAL (SELECT set_config('a.b', name, false)) AS x": "set_config", "SELECT 1 ORDER BY pg_try_advisory_lock(1)": "pg_try_advisory_lock",
			"SELECT rolpassword FROM pg_authid": "pg_authid is not one of objects", "SELECT pg_notify('sqube', '0')": "pg_notify",
			"SELECT (SELECT name FROM (SELECT name, pg_sleep(60) FROM log) AS x LIMIT 1)": "pg_sleep", "SELECT nextval('x')": "", "SELECT * FROM dblink('dbname=postgres', 'SELECT 1') AS d(i int)": "dblink",
		},
	}[f.engine]
	for _, all := range []map[string]string{statements, specific} {
		for sql, want := range all {
			answer, err := f.ask(t.Context(), query.Spec{SQL: sql, TimeoutSeconds: 5})
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.sql") || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %+v, %v, want %q", sql, answer, err, want)
			}
		}
	}
	if after := f.rows(state); after != before {
		t.Errorf("before: %s, afterwards: %s", before, after)
	}
	if _, err := os.Stat(file); err == nil {
		t.Errorf("%s has been written", file)
	}
	if f.engine == "postgres" && f.rows("SELECT random() < 2, gen_random_uuid() IS NOT NULL, clock_timestamp() IS NOT NULL, now() IS NOT NULL") != "[[true,true,true,true]]" {
		t.Error("harmless functions are refused")
	}
}

// rights has a viewer and an administrator of a namespace ask.
func (f *questions) rights() {
	t := f.t
	for _, role := range []string{"view", "admin"} {
		config := f.s.Config(t)
		config.Impersonate.UserName = role
		kubectlPrints(t, f.s.Kubeconfig, "create", "clusterrolebinding", "asks-"+role, "--clusterrole="+role, "--user="+role)
		other := &questions{t: t, s: f.s, admin: kubernetes.NewForConfigOrDie(config), engine: f.engine}
		if _, err := other.ask(t.Context(), query.Spec{SQL: "SELECT 1"}); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", role, err)
		}
	}
}
