package harness

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func TestPostgresGivesEachTestItsOwnDatabase(t *testing.T) {
	var first string
	t.Run("use", func(t *testing.T) {
		first = Postgres(t)
		for _, dsn := range []string{first, Postgres(t)} {
			if _, err := Connect(t, dsn).Exec(t.Context(), "CREATE TABLE here (n int)"); err != nil {
				t.Error(err)
			}
		}
	})
	if conn, err := pgx.Connect(t.Context(), first); err == nil {
		conn.Close(t.Context())
		t.Error("the database outlives its test")
	}
}

func TestPostgresServerKeepsItsDataOverStopAndKill(t *testing.T) {
	server := NewPostgresServer(t)
	dsn := server.Database(t)
	if _, err := Connect(t, dsn).Exec(t.Context(), "CREATE TABLE kept (n int)"); err != nil {
		t.Fatal(err)
	}
	for i, end := range []func() error{server.Stop, server.Kill} {
		if _, err := Connect(t, dsn).Exec(t.Context(), "INSERT INTO kept VALUES ($1)", i); err != nil {
			t.Fatal(err)
		}
		Must(t, end())
		if _, err := pgx.Connect(t.Context(), dsn); err == nil {
			t.Fatal("the server still responds")
		}
		Must(t, server.Start())
	}
	rows, err := Connect(t, dsn).Query(t.Context(), "SELECT n FROM kept ORDER BY n")
	Must(t, err)
	if got, err := pgx.CollectRows(rows, pgx.RowTo[int]); err != nil || !slices.Equal(got, []int{0, 1}) {
		t.Errorf("after the restarts the table has %v, %v", got, err)
	}
}

// TestPostgresEndsWithItsProcess kills a process that has started a server and waits until the server's directory is removed,
// which happens last.
func TestPostgresEndsWithItsProcess(t *testing.T) {
	const variable = "SQUBE_TEST_POSTGRES_CHILD"
	if os.Getenv(variable) != "" { // the process to kill
		server, err := StartPostgres()
		Must(t, err)
		os.Stdout.WriteString(server.dir)
		os.Stdout.Close()
		<-t.Context().Done()
		return
	}
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), variable+"=1")
	stdout, err := child.StdoutPipe()
	Must(t, err)
	Must(t, child.Start())
	dir := make([]byte, 4096)
	n, err := stdout.Read(dir)
	Must(t, err)
	if _, err := os.Stat(string(dir[:n])); err != nil {
		t.Fatalf("the child has no cluster: %v", err)
	}
	Must(t, child.Process.Kill())
	child.Wait() // reports that it was killed
	deadline := time.After(30 * time.Second)
	for {
		if _, err := os.Stat(string(dir[:n])); errors.Is(err, os.ErrNotExist) {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("%s still exists", dir[:n])
		case <-time.After(50 * time.Millisecond):
		}
	}
}
