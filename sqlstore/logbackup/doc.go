// Package logbackup maintains a continuous backup of a log in a folder or an S3 bucket: a snapshot, then every row that is written after
// it. Each moment since the first snapshot can be restored.
//
//	2026-11-22-00000003-xk2f7q/snapshot.jsonl.gz                                      what was live at revision 4711
//	2026-11-22-00000003-xk2f7q/00000000000000004711-00000000000000004790.0.jsonl.gz   the rows written after 4711, up to 4790
//	2026-11-22-00000003-xk2f7q/00000000000000004790-00000000000000004801.0.jsonl.gz
//
// A folder is a generation, numbered in order. A new one begins each SnapshotInterval, and if rows have been compacted before they were
// backed up (see Follower). The files are gzipped JSON lines: a head, one line per row with the columns of the table log as fields,
// and an end with their SHA-256. A file appears when it is complete. To keep their number small, 64 consecutive files are merged into
// one, named ".1", and 64 of those into ".2"; gzip and JSON lines can simply be concatenated.
//
// Rows are stored unchanged: what is encrypted in the database is encrypted in the backup.
package logbackup
