package dialect

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

// Start returns what the counter records of the history, that of a log with a position. p may be nil.
func (p *Past) Start(position Position) (from, at int64) {
	if p == nil {
		return position.Compacted, 0
	}
	return p.From, p.At
}

// RemovePacked removes replaced rows of the log that blocks have too.
const RemovePacked = `DELETE FROM log WHERE replaced_by IS NOT NULL AND EXISTS (SELECT 1 FROM past
WHERE past.api_group = log.api_group AND past.resource = log.resource AND past.key = log.key AND past.first_id <= log.id AND past.until >= log.replaced_by)`

// RecordRestored returns a statement that records the revisions from one on, its parameter, as lost, up to that of the counter. See RecordLost
// about empty.
func RecordRestored(parameter, empty string) string {
	return RecordLost(parameter, "revision", "written_at", empty) + " FROM counter WHERE revision > " + parameter
}
