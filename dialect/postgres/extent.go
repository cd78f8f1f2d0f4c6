package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// extent is the size of the log in bytes, and the size that it needs according to vacuum's statistics.
type extent struct {
	Rows    int64    // number of rows
	Last    int64    // the id of the last one
	Table   int64    // size of the table
	Needed  int64    // size of its rows
	Toast   int64    // size of the TOAST table, which holds large values
	Large   int64    // size of those values
	Indexes int64    // size of the indexes of both
	Invalid []string // indexes left by an interrupted rebuild
}

const (
	// slack is how many bytes larger than needed any part may be.
	slack = 512 << 10
	// largeValue is the length in bytes from which a value is in the TOAST table.
	largeValue = 2000
)

func (x extent) tooLarge() bool { return x.tableTooLarge() || x.toastTooLarge() }

// Rewriting the last rows of a table makes it as small as its rows.
func (x extent) tableTooLarge() bool { return x.Table > x.Needed+x.Needed/2+slack }

// Which values are last in the TOAST table is unknown. Rewriting all of them helps if more space is free than they take.
func (x extent) toastTooLarge() bool { return x.Toast > x.Large*5/2+slack }

// indexesTooLarge compares the indexes with their size when new, if that is known.
func (x extent) indexesTooLarge(new int64) bool {
	return x.Indexes > max((x.Needed+x.Large)/2+2*slack, 2*new)
}

// readExtent reads the extent. A row has 28 bytes before its columns.
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
