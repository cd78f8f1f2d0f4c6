-- The boot of the machine in which the counter was last raised, empty if that is
-- not known. After another boot, the machine may have been restored from a
-- snapshot and lack the last commits; so the counter jumps, and the revisions
-- after skipped_after and before skipped_until do not exist here.
DROP TABLE IF EXISTS booted;
CREATE TABLE booted (
  one           INTEGER PRIMARY KEY CHECK (one = 1),
  revision      INTEGER NOT NULL,
  compacted     INTEGER NOT NULL,
  written_at    INTEGER NOT NULL,
  boot          TEXT    NOT NULL DEFAULT '',
  skipped_after INTEGER NOT NULL DEFAULT 0,
  skipped_until INTEGER NOT NULL DEFAULT 0
);
INSERT INTO booted (one, revision, compacted, written_at) SELECT one, revision, compacted, written_at FROM counter;
DROP TABLE counter;
ALTER TABLE booted RENAME TO counter;
