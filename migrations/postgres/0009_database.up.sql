-- The OIDs of the database and of this table when the counter was last raised.
-- A copy that pg_restore or CREATE DATABASE ... TEMPLATE has made has others,
-- and may lack the last commits; revisions handed out there must not be handed
-- out again. Empty where they are not known.
ALTER TABLE counter ADD COLUMN IF NOT EXISTS database text NOT NULL DEFAULT '';
