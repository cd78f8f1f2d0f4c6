-- The address of the client and the id of its request in the audit log; '' if
-- they are not known.
ALTER TABLE log ADD COLUMN address  TEXT NOT NULL DEFAULT '';
ALTER TABLE log ADD COLUMN audit_id TEXT NOT NULL DEFAULT '';

-- Replaced versions are moved up to packed. From history_from on, a moment in
-- Unix milliseconds with it, all are kept, in log or in past. If compacted is
-- more than packed, versions up to compacted were removed, not moved.
ALTER TABLE counter ADD COLUMN packed       INTEGER NOT NULL DEFAULT 0;
ALTER TABLE counter ADD COLUMN history_from INTEGER NOT NULL DEFAULT 0;
ALTER TABLE counter ADD COLUMN history_at   INTEGER NOT NULL DEFAULT 0;
UPDATE counter SET packed = compacted, history_from = compacted, history_at = written_at;

-- Versions that are no longer in log, in blocks: consecutive versions of an
-- object, each but the first as its difference from the one before. A block was
-- current from first_id until the revision until. writers is a JSON array of
-- [operation, user, field manager, uid]. versions has for each version how much
-- its revision and its time are after those of the one before (first_id and
-- first_at for the first), and the index of its writer.
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
