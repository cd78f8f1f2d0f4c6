package postgres

// The statements that change the log, for tests of their query plans.
const (
	CloseRows   = closeRows
	InsertRows  = insertRows
	CompactRows = compactRows
)

// LeavingRows is a statement of the kind above.
var LeavingRows = leavingRows

// ShrinkLock is the advisory lock of the process that shrinks.
const ShrinkLock = shrinkLock
