-- What the steps in postgres/ come to, for new schemas of clusters, of which there may be many: one statement for each thing. A test compares both.
CREATE TABLE counter (
  one          bigint PRIMARY KEY CHECK (one = 1),
  revision     bigint NOT NULL,
  compacted    bigint NOT NULL,
  incarnation  text   NOT NULL DEFAULT '',
  written_at   bigint NOT NULL DEFAULT 0,
  packed       bigint NOT NULL DEFAULT 0,
  history_from bigint NOT NULL DEFAULT 0,
  history_at   bigint NOT NULL DEFAULT 0,
  database     text   NOT NULL DEFAULT ''
) WITH (
  fillfactor                     = 10,
  autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold    = 500,
  autovacuum_vacuum_cost_delay   = 0
);
INSERT INTO counter (one, revision, compacted) VALUES (1, 1, 0);

CREATE TABLE log (
  id            bigint PRIMARY KEY,
  replaces      bigint NOT NULL,
  replaced_by   bigint,
  operation     text COLLATE "C" NOT NULL,
  api_group     text COLLATE "C" NOT NULL,
  resource      text COLLATE "C" NOT NULL,
  key           text COLLATE "C" NOT NULL,
  namespace     text COLLATE "C" NOT NULL,
  name          text COLLATE "C" NOT NULL,
  uid           text COLLATE "C" NOT NULL,
  written_at    bigint NOT NULL,
  expires_at    bigint,
  user_name     text NOT NULL,
  field_manager text NOT NULL,
  labels        text NOT NULL,
  fields        text NOT NULL,
  value         text,
  address           text NOT NULL DEFAULT '',
  audit_id          text NOT NULL DEFAULT '',
  impersonated_user text NOT NULL DEFAULT '',
  credential_id     text NOT NULL DEFAULT ''
) WITH (
  autovacuum_vacuum_scale_factor        = 0.01,
  autovacuum_vacuum_threshold           = 500,
  autovacuum_vacuum_insert_scale_factor = 0.05,
  autovacuum_vacuum_insert_threshold    = 1000,
  autovacuum_analyze_scale_factor       = 0.05,
  autovacuum_analyze_threshold          = 1000,
  autovacuum_vacuum_cost_delay          = 0,
  toast.autovacuum_vacuum_scale_factor  = 0.01,
  toast.autovacuum_vacuum_threshold     = 500,
  toast.autovacuum_vacuum_cost_delay    = 0
);
CREATE UNIQUE INDEX log_live     ON log (api_group, resource, key) WHERE replaced_by IS NULL;
CREATE INDEX        log_replaced ON log (replaced_by)              WHERE replaced_by IS NOT NULL;
CREATE INDEX        log_expires  ON log (expires_at)               WHERE expires_at IS NOT NULL AND replaced_by IS NULL;

CREATE TABLE past (
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
  data      bytea NOT NULL,
  user_name text COLLATE "C" NOT NULL DEFAULT '',
  bare      integer          NOT NULL DEFAULT 0
);
ALTER TABLE past ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE INDEX past_key   ON past (api_group, resource, key, until);
CREATE INDEX past_until ON past (until, until_at, bytes);
CREATE INDEX past_share ON past (bare, namespace, user_name, until, bytes);

CREATE VIEW objects AS
SELECT api_group, resource, namespace, name, uid, id AS resource_version,
       to_timestamp(written_at / 1000.0) AS written_at,
       user_name, field_manager, labels::json AS labels, value::json AS value
FROM log WHERE replaced_by IS NULL;

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
