// Package logbackup keeps a backup of a log that goes on: a snapshot, then every row that is written after it, in a folder
// or an S3 bucket. Each moment from the first snapshot on can be restored.
//
//	2026-11-22-00000003-xk2f7q/snapshot.jsonl.gz                                      what was live at revision 4711
//	2026-11-22-00000003-xk2f7q/00000000000000004711-00000000000000004790.0.jsonl.gz   the rows written after 4711, up to 4790
//	2026-11-22-00000003-xk2f7q/00000000000000004790-00000000000000004801.0.jsonl.gz
//
// A folder is a generation, numbered in the order in which they began. A new one begins each SnapshotInterval, and where
// rows that are not in the backup yet have been forgotten (see Follower). The files are JSON lines in gzip, one line a row
// with the columns of the table log as its fields, between a head and an end that has their SHA-256. A file appears when
// it is whole. To keep their number small, 64 files in a row are put together to one, named ".1", and 64 of those to ".2":
// gzip and JSON lines allow for it.
//
// Rows are stored as they are: what is encrypted in the database is encrypted in the backup.
package logbackup
