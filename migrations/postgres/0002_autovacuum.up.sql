-- Every update leaves a dead version of a row behind, and compaction a dead
-- row. Postgres' defaults wait for a fifth of the table to be dead, and then
-- vacuum slowly; under thousands of updates per second the table is many times
-- as large by then. A vacuum of these tables takes well under a second, so it
-- may come each time that autovacuum looks, at full speed.
ALTER TABLE log SET (
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

-- One row, which every commit updates.
ALTER TABLE counter SET (
  autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold    = 500,
  autovacuum_vacuum_cost_delay   = 0
);
