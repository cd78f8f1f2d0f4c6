-- The address of the client and the id of its request in the audit log; '' if
-- they are not known.
ALTER TABLE log ADD COLUMN IF NOT EXISTS address  text NOT NULL DEFAULT '';
ALTER TABLE log ADD COLUMN IF NOT EXISTS audit_id text NOT NULL DEFAULT '';

-- Replaced versions are moved up to packed. From history_from on, a moment in
-- Unix milliseconds with it, all are kept, in log or in past. If compacted is
-- more than packed, versions up to compacted were removed, not moved.
ALTER TABLE counter ADD COLUMN IF NOT EXISTS packed       bigint NOT NULL DEFAULT 0;
ALTER TABLE counter ADD COLUMN IF NOT EXISTS history_from bigint NOT NULL DEFAULT 0;
ALTER TABLE counter ADD COLUMN IF NOT EXISTS history_at   bigint NOT NULL DEFAULT 0;
UPDATE counter SET packed = compacted, history_from = compacted;

-- Versions that are no longer in log, in blocks: consecutive versions of an
-- object, each as its difference from the one after it, also if that is in log;
-- the last one as it is if that has left log in another way. A block was
-- current from first_id until the revision until. writers is a JSON array of
-- [operation, user, field manager, uid]. versions has for each version how much
-- its revision and its time are after those of the one before (first_id and
-- first_at for the first), and the index of its writer.
CREATE TABLE IF NOT EXISTS past (
  first_id  bigint PRIMARY KEY,
  until     bigint NOT NULL,
  first_at  bigint NOT NULL,
  until_at  bigint NOT NULL,
  bytes     bigint NOT NULL,
  api_group text COLLATE "C" NOT NULL,
  resource  text COLLATE "C" NOT NULL,
  key       text COLLATE "C" NOT NULL,
  namespace text COLLATE "C" NOT NULL,
  name      text COLLATE "C" NOT NULL,
  writers   text  NOT NULL,
  versions  text  NOT NULL,
  data      bytea NOT NULL
);
CREATE INDEX IF NOT EXISTS past_key   ON past (api_group, resource, key, until);
CREATE INDEX IF NOT EXISTS past_until ON past (until, until_at, bytes);
ALTER TABLE past ALTER COLUMN data SET STORAGE EXTERNAL; -- it is compressed

-- Every version that is kept, what happened and by whom, oldest first. Those in
-- past show no value.
DROP VIEW IF EXISTS history;
CREATE VIEW history AS
SELECT id AS resource_version, operation, api_group, resource, namespace, name, uid,
       to_timestamp(written_at / 1000.0) AS written_at,
       user_name, field_manager, replaces, replaced_by, value::json AS value
FROM log
UNION ALL
SELECT id, writer ->> 0, api_group, resource, namespace, name, writer ->> 3,
       to_timestamp(written_at / 1000.0), writer ->> 1, writer ->> 2,
       CASE WHEN writer ->> 0 = 'create' THEN 0 ELSE lag(id) OVER versions END, coalesce(lead(id) OVER versions, until), NULL
FROM (SELECT past.*, v.nth, past.writers::json -> (v.version ->> 2)::int AS writer,
             (first_id + sum((v.version ->> 0)::bigint) OVER (PARTITION BY first_id ORDER BY v.nth))::bigint AS id,
             (first_at + sum((v.version ->> 1)::bigint) OVER (PARTITION BY first_id ORDER BY v.nth))::bigint AS written_at
      FROM past, json_array_elements(past.versions::json) WITH ORDINALITY AS v(version, nth)) AS packed
WINDOW versions AS (PARTITION BY first_id ORDER BY nth)
ORDER BY 1;
