-- The one counter: the newest revision handed out, and the newest forgotten.
CREATE TABLE IF NOT EXISTS counter (
  one       INTEGER PRIMARY KEY CHECK (one = 1),
  revision  INTEGER NOT NULL,
  compacted INTEGER NOT NULL
);
INSERT INTO counter (one, revision, compacted) VALUES (1, 1, 0) ON CONFLICT DO NOTHING;

-- Every version of every object. id is the resourceVersion; a row was current
-- from id until replaced_by. The row of a deletion holds no value and was
-- never current: it replaces itself.
CREATE TABLE IF NOT EXISTS log (
  id            INTEGER PRIMARY KEY,
  replaces      INTEGER NOT NULL,
  replaced_by   INTEGER,
  operation     TEXT    NOT NULL,
  api_group     TEXT    NOT NULL,
  resource      TEXT    NOT NULL,
  key           TEXT    NOT NULL,
  namespace     TEXT    NOT NULL,
  name          TEXT    NOT NULL,
  uid           TEXT    NOT NULL,
  written_at    INTEGER NOT NULL,
  expires_at    INTEGER,
  user_name     TEXT    NOT NULL,
  field_manager TEXT    NOT NULL,
  labels        TEXT    NOT NULL,
  fields        TEXT    NOT NULL,
  value         TEXT
);

CREATE UNIQUE INDEX IF NOT EXISTS log_live     ON log (api_group, resource, key) WHERE replaced_by IS NULL;
CREATE INDEX IF NOT EXISTS        log_replaced ON log (replaced_by)              WHERE replaced_by IS NOT NULL;
CREATE INDEX IF NOT EXISTS        log_expires  ON log (expires_at)               WHERE expires_at IS NOT NULL AND replaced_by IS NULL;

-- What exists now.
DROP VIEW IF EXISTS objects;
CREATE VIEW objects AS
SELECT api_group, resource, namespace, name, uid, id AS resource_version,
       strftime('%Y-%m-%dT%H:%M:%fZ', written_at / 1000.0, 'unixepoch') AS written_at,
       user_name, field_manager, labels, value
FROM log WHERE replaced_by IS NULL;

-- Every version still kept, what happened and by whom, oldest first.
DROP VIEW IF EXISTS history;
CREATE VIEW history AS
SELECT id AS resource_version, operation, api_group, resource, namespace, name, uid,
       strftime('%Y-%m-%dT%H:%M:%fZ', written_at / 1000.0, 'unixepoch') AS written_at,
       user_name, field_manager, replaces, replaced_by, value
FROM log ORDER BY id;
