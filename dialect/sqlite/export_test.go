package sqlite

// CompactRows is the statement that forgets a batch.
const CompactRows = compactRows
