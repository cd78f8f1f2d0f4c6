package imports

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// run runs a command of sqube to its end.
func run(t *testing.T, arguments []string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), sqube.Binary(t), arguments...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// recorded returns one of the recordings.
func recorded(t *testing.T, name string) []byte {
	t.Helper()
	return harness.ReadGzip(t, filepath.Join("testdata", name+".gz"))
}

// recording returns the path of a file with a recorded state.
func recording(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state")
	harness.Must(t, os.WriteFile(path, recorded(t, name+".state"), 0o600))
	return path
}

// kineDatabase returns the DSN of a database with the recorded table of kine.
func kineDatabase(t *testing.T) string {
	t.Helper()
	dsn := harness.Postgres(t)
	connection, err := pgx.Connect(t.Context(), dsn)
	harness.Must(t, err)
	defer connection.Close(t.Context())
	// kine: pkg/drivers/pgsql/pgsql.go
	_, err = connection.Exec(t.Context(), `CREATE TABLE kine (id BIGSERIAL PRIMARY KEY, name text COLLATE "C", created INTEGER, deleted INTEGER,
create_revision BIGINT, prev_revision BIGINT, lease INTEGER, value bytea, old_value bytea)`)
	if err == nil {
		_, err = connection.PgConn().CopyFrom(t.Context(), bytes.NewReader(recorded(t, "kine-postgres.state")), "COPY kine FROM STDIN")
	}
	harness.Must(t, err)
	return dsn
}

// answers are the recorded responses of kube-apiserver; see record.Answers.
type answers struct {
	Token string
	Lists map[string]json.RawMessage
}

func recordedAnswers(t *testing.T, name string) answers {
	t.Helper()
	var a answers
	harness.Must(t, json.Unmarshal(recorded(t, name+".answers.json"), &a))
	return a
}
