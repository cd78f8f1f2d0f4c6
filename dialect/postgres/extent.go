package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// extent is how large the log is and has to be, in bytes, as the last vacuum has found.
type extent struct {
	Rows    int64    // their number
	Table   int64    // the table, and
	Needed  int64    // what its rows need there
	Toast   int64    // what is beside the table, large values in pieces, and
	Large   int64    // what these need there
	Indexes int64    // of both
	Invalid []string // indexes that somebody gave up making
	Last    int64    // the last row's id
}

// What may be too much: as a part of what is needed, which is what rewriting gets below, and a little more.
const (
	slack      = 512 << 10
	largeValue = 2000 // bytes from which on a value is kept beside the table
)

func (x extent) tableTooLarge() bool { return x.Table > x.Needed+x.Needed/2+slack }

// To rewrite large values, all of them, helps where there is more free room than they take.
func (x extent) toastTooLarge() bool { return x.Toast > 5*x.Large/2+slack }
func (x extent) indexesTooLarge(new int64) bool {
	return x.Indexes > max((x.Needed+x.Large)/2+2*slack, 2*new)
}

// A row begins with 28 bytes.
func (e *Engine) extent(ctx context.Context) (x extent, err error) {
	rows, err := e.writer.Query(ctx, `
SELECT reltuples::bigint, pg_relation_size(c.oid),
       coalesce((reltuples * (28 + (SELECT sum(avg_width * (1 - null_frac)) FROM pg_stats WHERE schemaname = nspname AND tablename = relname)))::bigint, pg_relation_size(c.oid)),
       pg_relation_size(reltoastrelid), (SELECT coalesce(sum(pg_column_size(value)), 0) FROM log WHERE pg_column_size(value) >= $1),
       (SELECT sum(pg_relation_size(indexrelid)) FROM pg_index WHERE indrelid IN (c.oid, reltoastrelid))::bigint,
       ARRAY(SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = c.oid AND NOT indisvalid),
       (SELECT coalesce(max(id), 0) FROM log)
FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE c.oid = 'log'::regclass`, largeValue)
	if err != nil {
		return x, err
	}
	return pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[extent])
}
