-- user_name is who was authenticated; impersonated_user is in whose name they
-- wrote, '' if in their own. credential_id names what authenticated them, such
-- as JTI=... of a token or X509SHA256=... of a certificate, '' if unknown. In
-- older rows, user_name is the impersonated user if there was one.
ALTER TABLE log ADD COLUMN IF NOT EXISTS impersonated_user text NOT NULL DEFAULT '';
ALTER TABLE log ADD COLUMN IF NOT EXISTS credential_id     text NOT NULL DEFAULT '';

-- An element of writers can have two more: [operation, user, field manager, uid,
-- impersonated user, credential id].
--
-- user_name is who wrote most of a block: its bytes count as theirs. If room is
-- short, a block gives up its values: then bare is 1, and data has the names of
-- the fields that each version's successor changed.
ALTER TABLE past ADD COLUMN IF NOT EXISTS user_name text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE past ADD COLUMN IF NOT EXISTS bare      integer          NOT NULL DEFAULT 0;
UPDATE past SET user_name = coalesce(writers::json -> 0 ->> 1, '') WHERE user_name = '';
CREATE INDEX IF NOT EXISTS past_share ON past (bare, namespace, user_name, until, bytes);

DROP VIEW IF EXISTS history;
CREATE VIEW history AS
SELECT id AS resource_version, operation, api_group, resource, namespace, name, uid,
       to_timestamp(written_at / 1000.0) AS written_at,
       user_name, impersonated_user, credential_id, field_manager, replaces, replaced_by, value::json AS value
FROM log
UNION ALL
SELECT id, writer ->> 0, api_group, resource, namespace, name, writer ->> 3,
       to_timestamp(written_at / 1000.0),
       writer ->> 1, coalesce(writer ->> 4, ''), coalesce(writer ->> 5, ''), writer ->> 2,
       CASE WHEN writer ->> 0 = 'create' THEN 0 ELSE lag(id) OVER versions END, coalesce(lead(id) OVER versions, until), NULL
FROM (SELECT past.*, v.nth, past.writers::json -> (v.version ->> 2)::int AS writer,
             (first_id + sum((v.version ->> 0)::bigint) OVER (PARTITION BY first_id ORDER BY v.nth))::bigint AS id,
             (first_at + sum((v.version ->> 1)::bigint) OVER (PARTITION BY first_id ORDER BY v.nth))::bigint AS written_at
      FROM past, json_array_elements(past.versions::json) WITH ORDINALITY AS v(version, nth)) AS packed
WINDOW versions AS (PARTITION BY first_id ORDER BY nth)
ORDER BY 1;
