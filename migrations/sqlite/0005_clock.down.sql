ALTER TABLE counter DROP COLUMN written_at;
