-- When the counter was raised last, in Unix milliseconds; 0 if never. Times in
-- the log never go back: no row is written earlier than that.
DROP TABLE IF EXISTS timed;
CREATE TABLE timed (
  one        INTEGER PRIMARY KEY CHECK (one = 1),
  revision   INTEGER NOT NULL,
  compacted  INTEGER NOT NULL,
  written_at INTEGER NOT NULL
);
INSERT INTO timed
SELECT one, revision, compacted, coalesce((SELECT written_at FROM log ORDER BY id DESC LIMIT 1), 0) FROM counter;
DROP TABLE counter;
ALTER TABLE timed RENAME TO counter;
