package postgres

// The statements that change the log, for tests of their query plans.
const (
	CloseRows   = closeRows
	InsertRows  = insertRows
	CompactRows = compactRows
)
