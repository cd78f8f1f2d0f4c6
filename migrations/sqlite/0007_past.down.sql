DROP VIEW history;
CREATE VIEW history AS
SELECT id AS resource_version, operation, api_group, resource, namespace, name, uid,
       strftime('%Y-%m-%dT%H:%M:%fZ', written_at / 1000.0, 'unixepoch') AS written_at,
       user_name, field_manager, replaces, replaced_by, value
FROM log ORDER BY id;
DROP TABLE past;
ALTER TABLE counter DROP COLUMN packed;
ALTER TABLE counter DROP COLUMN history_from;
ALTER TABLE counter DROP COLUMN history_at;
ALTER TABLE log DROP COLUMN address;
ALTER TABLE log DROP COLUMN audit_id;
