-- Which incarnation of the server the counter was last raised in: the system
-- identifier and the timeline. A standby that is promoted, and a server that
-- is restored from a base backup, goes on on a timeline of its own and may
-- lack the last commits of the one before; revisions handed out there must
-- not be handed out again. Empty where it is not known.
ALTER TABLE counter ADD COLUMN IF NOT EXISTS incarnation text NOT NULL DEFAULT '';
