DROP VIEW history;
DROP INDEX past_share;
ALTER TABLE past DROP COLUMN user_name;
ALTER TABLE past DROP COLUMN bare;
ALTER TABLE log DROP COLUMN impersonated_user;
ALTER TABLE log DROP COLUMN credential_id;
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
