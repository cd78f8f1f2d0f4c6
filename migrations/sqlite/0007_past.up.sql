-- The address of the client and the id of its request in the audit log; '' if
-- they are not known.
DROP VIEW IF EXISTS objects;
DROP VIEW IF EXISTS history;
DROP TABLE IF EXISTS addressed;

CREATE TABLE addressed (
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
  address       TEXT    NOT NULL DEFAULT '',
  audit_id      TEXT    NOT NULL DEFAULT '',
  labels        TEXT    NOT NULL,
  fields        TEXT    NOT NULL,
  value         TEXT
);
INSERT INTO addressed (id, replaces, replaced_by, padding, operation, api_group, resource, key, namespace, name, uid, written_at, expires_at, user_name, field_manager, labels, fields, value)
SELECT id, replaces, replaced_by, padding, operation, api_group, resource, key, namespace, name, uid, written_at, expires_at, user_name, field_manager, labels, fields, value
FROM log ORDER BY id;
DROP TABLE log;
ALTER TABLE addressed RENAME TO log;

CREATE UNIQUE INDEX log_live     ON log (api_group, resource, key) WHERE replaced_by IS NULL;
CREATE INDEX        log_replaced ON log (replaced_by)              WHERE replaced_by IS NOT NULL;
CREATE INDEX        log_expires  ON log (expires_at)               WHERE expires_at IS NOT NULL AND replaced_by IS NULL;

CREATE VIEW objects AS
SELECT api_group, resource, namespace, name, uid, id AS resource_version,
       strftime('%Y-%m-%dT%H:%M:%fZ', written_at / 1000.0, 'unixepoch') AS written_at,
       user_name, field_manager, labels, value
FROM log WHERE replaced_by IS NULL;

-- Replaced versions are moved up to packed. From history_from on, a moment in
-- Unix milliseconds with it, all are kept, in log or in past. If compacted is
-- more than packed, versions up to compacted were removed, not moved.
DROP TABLE IF EXISTS packing;
CREATE TABLE packing (
  one           INTEGER PRIMARY KEY CHECK (one = 1),
  revision      INTEGER NOT NULL,
  compacted     INTEGER NOT NULL,
  written_at    INTEGER NOT NULL,
  boot          TEXT    NOT NULL DEFAULT '',
  skipped_after INTEGER NOT NULL DEFAULT 0,
  skipped_until INTEGER NOT NULL DEFAULT 0,
  packed        INTEGER NOT NULL DEFAULT 0,
  history_from  INTEGER NOT NULL DEFAULT 0,
  history_at    INTEGER NOT NULL DEFAULT 0
);
INSERT INTO packing (one, revision, compacted, written_at, boot, skipped_after, skipped_until, packed, history_from)
SELECT one, revision, compacted, written_at, boot, skipped_after, skipped_until, compacted, compacted FROM counter;
DROP TABLE counter;
ALTER TABLE packing RENAME TO counter;

-- Versions that are no longer in log, in blocks: consecutive versions of an
-- object, each as its difference from the one after it, also if that is in log;
-- the last one as it is if that has left log in another way. A block was
-- current from first_id until the revision until. writers is a JSON array of
-- [operation, user, field manager, uid]. versions has for each version how much
-- its revision and its time are after those of the one before (first_id and
-- first_at for the first), and the index of its writer.
DROP TABLE IF EXISTS past;
CREATE TABLE past (
  first_id  INTEGER PRIMARY KEY,
  until     INTEGER NOT NULL,
  first_at  INTEGER NOT NULL,
  until_at  INTEGER NOT NULL,
  bytes     INTEGER NOT NULL,
  api_group TEXT    NOT NULL,
  resource  TEXT    NOT NULL,
  key       TEXT    NOT NULL,
  namespace TEXT    NOT NULL,
  name      TEXT    NOT NULL,
  writers   TEXT    NOT NULL,
  versions  TEXT    NOT NULL,
  data      BLOB    NOT NULL
);
CREATE INDEX past_key   ON past (api_group, resource, key, until);
CREATE INDEX past_until ON past (until, until_at, bytes);

-- Every version that is kept, what happened and by whom, oldest first. Those in
-- past show no value.
DROP VIEW IF EXISTS history;
CREATE VIEW history AS
SELECT id AS resource_version, operation, api_group, resource, namespace, name, uid,
       strftime('%Y-%m-%dT%H:%M:%fZ', written_at / 1000.0, 'unixepoch') AS written_at,
       user_name, field_manager, replaces, replaced_by, value
FROM log
UNION ALL
SELECT id, writer ->> 0, api_group, resource, namespace, name, writer ->> 3,
       strftime('%Y-%m-%dT%H:%M:%fZ', written_at / 1000.0, 'unixepoch'), writer ->> 1, writer ->> 2,
       CASE WHEN writer ->> 0 = 'create' THEN 0 ELSE lag(id) OVER versions END, coalesce(lead(id) OVER versions, until), NULL
FROM (SELECT past.*, v.key AS nth, json_extract(past.writers, '$[' || json_extract(v.value, '$[2]') || ']') AS writer,
             first_id + sum(json_extract(v.value, '$[0]')) OVER (PARTITION BY first_id ORDER BY v.key) AS id,
             first_at + sum(json_extract(v.value, '$[1]')) OVER (PARTITION BY first_id ORDER BY v.key) AS written_at
      FROM past, json_each(past.versions) AS v)
WINDOW versions AS (PARTITION BY first_id ORDER BY nth)
ORDER BY 1;
