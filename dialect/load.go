package dialect

import "time"

// Past is the history that Engine.Load fills a database with.
type Past struct {
	// UpTo is the revision at which the database was as it is filled. Those between it and the position that is loaded are lost.
	UpTo int64
	// From is the first revision of the history, and At its time in Unix milliseconds. Blocks may set them until it returns.
	From, At int64
	// Blocks passes all blocks to add. The rows that Load gets may have replaced versions too. It reads those first, so that blocks may have
	// some of them again.
	Blocks func(add func(*Block) error) error
}

// SetLoaded sets the counter of a database whose log has been filled up to a position, and fits the log and past together. exec runs a
// statement with parameters that are written as ?. About empty, see RecordLost.
func SetLoaded(position Position, past *Past, empty string, exec func(statement string, args ...any) error) error {
	from, at := position.Compacted, int64(0)
	if past != nil {
		from, at = past.From, past.At
	}
	err := exec(`UPDATE counter SET revision = ?, compacted = ?, packed = ?, history_from = ?, history_at = ?, written_at = (SELECT max(at) FROM (
SELECT CAST(? AS bigint) AS at UNION ALL SELECT written_at FROM (SELECT written_at FROM log ORDER BY id DESC LIMIT 1) AS newest) AS times)`,
		position.Revision, position.Compacted, position.Compacted, from, at, time.Now().UnixMilli())
	if err != nil || past == nil {
		return err
	}
	// Blocks have some replaced rows too.
	err = exec(`DELETE FROM log WHERE replaced_by IS NOT NULL AND EXISTS (SELECT 1 FROM past
WHERE past.api_group = log.api_group AND past.resource = log.resource AND past.key = log.key AND past.first_id <= log.id AND past.until >= log.replaced_by)`)
	if err != nil {
		return err
	}
	return exec(RecordLost("CAST(? AS bigint)", "revision", "written_at", empty)+" FROM counter WHERE revision > ?", past.UpTo+1, past.UpTo+1)
}
