DROP VIEW history;
DROP INDEX past_share;
ALTER TABLE past DROP COLUMN user_name;
ALTER TABLE past DROP COLUMN bare;
ALTER TABLE log DROP COLUMN impersonated_user;
ALTER TABLE log DROP COLUMN credential_id;
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
