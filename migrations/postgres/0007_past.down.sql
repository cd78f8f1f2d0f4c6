DROP VIEW history;
CREATE VIEW history AS
SELECT id AS resource_version, operation, api_group, resource, namespace, name, uid,
       to_timestamp(written_at / 1000.0) AS written_at,
       user_name, field_manager, replaces, replaced_by, value::json AS value
FROM log ORDER BY id;
DROP TABLE past;
ALTER TABLE counter DROP COLUMN packed;
ALTER TABLE counter DROP COLUMN history_from;
ALTER TABLE counter DROP COLUMN history_at;
ALTER TABLE log DROP COLUMN address;
ALTER TABLE log DROP COLUMN audit_id;
