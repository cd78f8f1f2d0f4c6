package outage

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sqube/sqube/test/faults"
	"github.com/sqube/sqube/test/harness"
)

// TestDeadClientIsLetGo makes a client hang in the middle of a commit, with the counter locked, while its kernel still
// responds: others can write again within seconds.
func TestDeadClientIsLetGo(t *testing.T) {
	t.Parallel()
	dsn := harness.Postgres(t)
	c := serve(t, dsn, "--datastore-timeout", "4s")
	const bump = "UPDATE counter SET revision = revision + 1"
	for _, client := range []struct {
		name, dies string
		begin      func(*pgx.Conn) error
	}{
		{"idle", "between statements", func(conn *pgx.Conn) error {
			_, err := conn.Exec(t.Context(), "BEGIN; SELECT revision FROM counter FOR UPDATE")
			return err
		}},
		{"speaking", "between the messages of a pipeline", func(conn *pgx.Conn) error {
			pipeline := conn.PgConn().StartPipeline(context.Background())
			pipeline.SendQueryParams(bump, nil, nil, nil, nil)
			pipeline.SendFlushRequest()
			if err := pipeline.Flush(); err != nil {
				return err
			}
			_, err := pipeline.GetResults()
			return err
		}},
	} {
		t.Run(client.dies, func(t *testing.T) {
			proxy := faults.NewProxy(t, harness.ParseDSN(t, dsn).Host)
			conn, err := pgx.Connect(t.Context(), through(t, dsn, proxy.Addr()))
			harness.Must(t, err)
			harness.Must(t, client.begin(conn))
			proxy.Drop()
			c.creates(t, "after-one-that-died-"+client.name)
		})
	}
}
