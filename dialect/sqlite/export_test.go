package sqlite

// SupersededRows is the statement that finds what a batch of compaction forgets.
const SupersededRows = supersededRows

// OpenNamedMemory is OpenMemory of a database that others may have open too.
var OpenNamedMemory = openMemory

// DropConnections has the driver connect again.
func DropConnections(e *Engine) {
	e.writer.SetMaxIdleConns(-1)
	e.writer.SetMaxIdleConns(1)
}
