package sqlite

// SupersededRows is the statement that finds what a batch of compaction forgets.
const SupersededRows = supersededRows
