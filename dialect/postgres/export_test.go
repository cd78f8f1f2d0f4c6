package postgres

// The statements that change the log, for those who ask how they are run.
const (
	CloseRows   = closeRows
	InsertRows  = insertRows
	CompactRows = compactRows
)
