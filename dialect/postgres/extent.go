package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// extent is how large the log is, in bytes, and how large it has to be, as vacuum has found.
type extent struct {
	Rows    int64    // how many there are
	Last    int64    // the id of the last one
	Table   int64    // the table
	Needed  int64    // what its rows take
	Toast   int64    // what is beside the table: values of some size, in pieces
	Large   int64    // what these take
	Indexes int64    // of both
	Invalid []string // those that were given up while they were made
}

const (
	// slack is what each part may have too much whatever its size.
	slack = 512 << 10
	// largeValue is from how many bytes on a value is beside the table.
	largeValue = 2000
)

func (x extent) tooLarge() bool { return x.tableTooLarge() || x.toastTooLarge() }

// Rewriting the last rows of a table leaves it as large as it has to be.
func (x extent) tableTooLarge() bool { return x.Table > x.Needed+x.Needed/2+slack }

// Of values beside the table nobody knows which are the last. Rewriting all of them helps where more room is free than
// they take.
func (x extent) toastTooLarge() bool { return x.Toast > x.Large*5/2+slack }

// indexesTooLarge compares them with what they had when they were new, should that be known.
func (x extent) indexesTooLarge(new int64) bool {
	return x.Indexes > max((x.Needed+x.Large)/2+2*slack, 2*new)
}

// readExtent asks for it. A row has 28 bytes before its columns.
func readExtent(ctx context.Context, conn *pgx.Conn) (x extent, err error) {
	rows, err := conn.Query(ctx, `
SELECT greatest(reltuples, 0)::bigint, (SELECT coalesce(max(id), 0) FROM log), pg_relation_size(oid),
       coalesce((greatest(reltuples, 0) * (28 + width))::bigint, pg_relation_size(oid)), pg_relation_size(reltoastrelid),
       CASE WHEN pg_relation_size(reltoastrelid) > $1
            THEN (SELECT coalesce(sum(pg_column_size(value)), 0) FROM log WHERE pg_column_size(value) >= $2) ELSE 0 END,
       (SELECT sum(pg_relation_size(indexrelid)) FROM pg_index WHERE indrelid IN (oid, reltoastrelid))::bigint,
       ARRAY(SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = oid AND NOT indisvalid)
FROM (SELECT c.oid, reltuples, reltoastrelid,
             (SELECT sum(avg_width * (1 - null_frac)) FROM pg_stats WHERE schemaname = nspname AND tablename = relname) AS width
      FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE c.oid = 'log'::regclass) AS log_table`, slack, largeValue)
	if err != nil {
		return x, err
	}
	return pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[extent])
}
