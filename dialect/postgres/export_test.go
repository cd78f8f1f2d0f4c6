package postgres

// The statements that change the log, for those who ask how they are run.
const (
	Bump        = bump
	CloseRows   = closeRows
	InsertRows  = insertRows
	CompactRows = compactRows
)
