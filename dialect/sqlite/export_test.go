package sqlite

import "testing"

// ReplacedRows is the statement that selects a batch of compaction.
const ReplacedRows = replacedRows

// MaxFreePages is how many pages stay free while rows are being removed.
const MaxFreePages = maxFreePages

// DropConnections makes the driver reconnect.
func DropConnections(e *Engine) {
	e.writer.SetMaxIdleConns(-1)
	e.writer.SetMaxIdleConns(1)
}

// Reboot makes it seem, until restore is called, that the machine was booted again.
func Reboot(id string) (restore func()) {
	before := bootID
	bootID = func() string { return id }
	return func() { bootID = before }
}

// DropReaders makes the driver reconnect for reads.
func DropReaders(e *Engine) {
	e.readers.SetMaxIdleConns(-1)
	e.readers.SetMaxIdleConns(4)
}

// LimitTemporary limits what a statement of Ask may write to temporary files, until restore is called.
func LimitTemporary(bytes int64) (restore func()) {
	before := maxAskedTemporary
	maxAskedTemporary = bytes
	return func() { maxAskedTemporary = before }
}

// MarkAhead sets how far marks are ahead of the log, until restore is called.
func MarkAhead(revisions int64) (restore func()) {
	before := markAhead
	markAhead = revisions
	return func() { markAhead = before }
}

// MarkOf returns up to which revision some may be issued by the mark of the file at path.
func MarkOf(t *testing.T, path string) int64 {
	t.Helper()
	m, err := readMark(path)
	if err != nil || m == nil {
		t.Fatalf("the mark is %+v, %v", m, err)
	}
	return m.Most
}
