-- user_name is who was authenticated; impersonated_user is in whose name they
-- wrote, '' if in their own. credential_id names what authenticated them, such
-- as JTI=... of a token or X509SHA256=... of a certificate, '' if unknown. In
-- older rows, user_name is the impersonated user if there was one.
DROP VIEW IF EXISTS objects;
DROP VIEW IF EXISTS history;
DROP TABLE IF EXISTS attributed;

CREATE TABLE attributed (
  id                INTEGER PRIMARY KEY,
  replaces          INTEGER NOT NULL,
  replaced_by       INTEGER,
  padding           BLOB,
  operation         TEXT    NOT NULL,
  api_group         TEXT    NOT NULL,
  resource          TEXT    NOT NULL,
  key               TEXT    NOT NULL,
  namespace         TEXT    NOT NULL,
  name              TEXT    NOT NULL,
  uid               TEXT    NOT NULL,
  written_at        INTEGER NOT NULL,
  expires_at        INTEGER,
  user_name         TEXT    NOT NULL,
  impersonated_user TEXT    NOT NULL DEFAULT '',
  credential_id     TEXT    NOT NULL DEFAULT '',
  field_manager     TEXT    NOT NULL,
  address           TEXT    NOT NULL DEFAULT '',
  audit_id          TEXT    NOT NULL DEFAULT '',
  labels            TEXT    NOT NULL,
  fields            TEXT    NOT NULL,
  value             TEXT
);
INSERT INTO attributed (id, replaces, replaced_by, padding, operation, api_group, resource, key, namespace, name, uid, written_at, expires_at, user_name, field_manager, address, audit_id, labels, fields, value)
SELECT id, replaces, replaced_by, padding, operation, api_group, resource, key, namespace, name, uid, written_at, expires_at, user_name, field_manager, address, audit_id, labels, fields, value
FROM log ORDER BY id;
DROP TABLE log;
ALTER TABLE attributed RENAME TO log;

CREATE UNIQUE INDEX log_live     ON log (api_group, resource, key) WHERE replaced_by IS NULL;
CREATE INDEX        log_replaced ON log (replaced_by)              WHERE replaced_by IS NOT NULL;
CREATE INDEX        log_expires  ON log (expires_at)               WHERE expires_at IS NOT NULL AND replaced_by IS NULL;

CREATE VIEW objects AS
SELECT api_group, resource, namespace, name, uid, id AS resource_version,
       strftime('%Y-%m-%dT%H:%M:%fZ', written_at / 1000.0, 'unixepoch') AS written_at,
       user_name, field_manager, labels, value
FROM log WHERE replaced_by IS NULL;

-- An element of writers can have two more: [operation, user, field manager, uid,
-- impersonated user, credential id].
--
-- user_name is who wrote most of a block: its bytes count as theirs. If room is
-- short, a block gives up its values: then bare is 1, and data has the names of
-- the fields that each version's successor changed.
DROP TABLE IF EXISTS shared;
CREATE TABLE shared (
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
  user_name TEXT    NOT NULL DEFAULT '',
  bare      INTEGER NOT NULL DEFAULT 0,
  writers   TEXT    NOT NULL,
  versions  TEXT    NOT NULL,
  data      BLOB    NOT NULL
);
INSERT INTO shared (first_id, until, first_at, until_at, bytes, api_group, resource, key, namespace, name, user_name, writers, versions, data)
SELECT first_id, until, first_at, until_at, bytes, api_group, resource, key, namespace, name, coalesce(json_extract(writers, '$[0][1]'), ''), writers, versions, data
FROM past ORDER BY first_id;
DROP TABLE past;
ALTER TABLE shared RENAME TO past;
CREATE INDEX past_key   ON past (api_group, resource, key, until);
CREATE INDEX past_until ON past (until, until_at, bytes);
CREATE INDEX past_share ON past (bare, namespace, user_name, until, bytes);

CREATE VIEW history AS
SELECT id AS resource_version, operation, api_group, resource, namespace, name, uid,
       strftime('%Y-%m-%dT%H:%M:%fZ', written_at / 1000.0, 'unixepoch') AS written_at,
       user_name, impersonated_user, credential_id, field_manager, replaces, replaced_by, value
FROM log
UNION ALL
SELECT id, writer ->> 0, api_group, resource, namespace, name, writer ->> 3,
       strftime('%Y-%m-%dT%H:%M:%fZ', written_at / 1000.0, 'unixepoch'),
       writer ->> 1, coalesce(writer ->> 4, ''), coalesce(writer ->> 5, ''), writer ->> 2,
       CASE WHEN writer ->> 0 = 'create' THEN 0 ELSE lag(id) OVER versions END, coalesce(lead(id) OVER versions, until), NULL
FROM (SELECT past.*, v.key AS nth, json_extract(past.writers, '$[' || json_extract(v.value, '$[2]') || ']') AS writer,
             first_id + sum(json_extract(v.value, '$[0]')) OVER (PARTITION BY first_id ORDER BY v.key) AS id,
             first_at + sum(json_extract(v.value, '$[1]')) OVER (PARTITION BY first_id ORDER BY v.key) AS written_at
      FROM past, json_each(past.versions) AS v)
WINDOW versions AS (PARTITION BY first_id ORDER BY nth)
ORDER BY 1;
