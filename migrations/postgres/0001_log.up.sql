-- The one counter: the newest revision handed out, and the newest forgotten.
-- Its row lock, held until commit, is what makes revisions visible in order.
CREATE TABLE IF NOT EXISTS counter (
  one       bigint PRIMARY KEY CHECK (one = 1),
  revision  bigint NOT NULL,
  compacted bigint NOT NULL
) WITH (fillfactor = 10);
INSERT INTO counter (one, revision, compacted) VALUES (1, 1, 0) ON CONFLICT DO NOTHING;

-- Every version of every object. id is the resourceVersion; a row was current
-- from id until replaced_by. The row of a deletion holds no value and was
-- never current: it replaces itself.
CREATE TABLE IF NOT EXISTS log (
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
  value         text
);

CREATE UNIQUE INDEX IF NOT EXISTS log_live     ON log (api_group, resource, key) WHERE replaced_by IS NULL;
CREATE INDEX IF NOT EXISTS        log_replaced ON log (replaced_by)              WHERE replaced_by IS NOT NULL;
CREATE INDEX IF NOT EXISTS        log_expires  ON log (expires_at)               WHERE expires_at IS NOT NULL AND replaced_by IS NULL;

-- What exists now.
DROP VIEW IF EXISTS objects;
CREATE VIEW objects AS
SELECT api_group, resource, namespace, name, uid, id AS resource_version,
       to_timestamp(written_at / 1000.0) AS written_at,
       user_name, field_manager, labels::json AS labels, value::json AS value
FROM log WHERE replaced_by IS NULL;

-- Every version still kept, what happened and by whom, oldest first.
DROP VIEW IF EXISTS history;
CREATE VIEW history AS
SELECT id AS resource_version, operation, api_group, resource, namespace, name, uid,
       to_timestamp(written_at / 1000.0) AS written_at,
       user_name, field_manager, replaces, replaced_by, value::json AS value
FROM log ORDER BY id;
