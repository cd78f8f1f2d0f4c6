-- A live row has as many bytes of padding as the revision that will replace it
-- takes, a replaced one has none. So a row is as long after it was replaced as
-- it was before, and SQLite writes the page with its first columns alone, not
-- the whole row in another place. It has to stand beside replaced_by: what is
-- in between moves.
DROP VIEW IF EXISTS objects;
DROP VIEW IF EXISTS history;
DROP TABLE IF EXISTS padded;

CREATE TABLE padded (
  id            INTEGER PRIMARY KEY,
  replaces      INTEGER NOT NULL,
  replaced_by   INTEGER,
  padding       BLOB,
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
INSERT INTO padded
SELECT id, replaces, replaced_by,
       CASE WHEN replaced_by IS NULL THEN zeroblob((
         SELECT CASE WHEN revision < 0x80 THEN 1 WHEN revision < 0x8000 THEN 2 WHEN revision < 0x800000 THEN 3
                     WHEN revision < 0x80000000 THEN 4 WHEN revision < 0x800000000000 THEN 6 ELSE 8 END
         FROM counter)) END,
       operation, api_group, resource, key, namespace, name, uid, written_at, expires_at,
       user_name, field_manager, labels, fields, value
FROM log ORDER BY id;
DROP TABLE log;
ALTER TABLE padded RENAME TO log;

CREATE UNIQUE INDEX log_live     ON log (api_group, resource, key) WHERE replaced_by IS NULL;
CREATE INDEX        log_replaced ON log (replaced_by)              WHERE replaced_by IS NOT NULL;
CREATE INDEX        log_expires  ON log (expires_at)               WHERE expires_at IS NOT NULL AND replaced_by IS NULL;

CREATE VIEW objects AS
SELECT api_group, resource, namespace, name, uid, id AS resource_version,
       strftime('%Y-%m-%dT%H:%M:%fZ', written_at / 1000.0, 'unixepoch') AS written_at,
       user_name, field_manager, labels, value
FROM log WHERE replaced_by IS NULL;

CREATE VIEW history AS
SELECT id AS resource_version, operation, api_group, resource, namespace, name, uid,
       strftime('%Y-%m-%dT%H:%M:%fZ', written_at / 1000.0, 'unixepoch') AS written_at,
       user_name, field_manager, replaces, replaced_by, value
FROM log ORDER BY id;
