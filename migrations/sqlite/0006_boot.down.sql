ALTER TABLE counter DROP COLUMN boot;
ALTER TABLE counter DROP COLUMN skipped_after;
ALTER TABLE counter DROP COLUMN skipped_until;
