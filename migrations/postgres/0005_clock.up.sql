-- When the counter was raised last, in Unix milliseconds; 0 if never. Times in
-- the log never go back: no row is written earlier than that.
ALTER TABLE counter ADD COLUMN IF NOT EXISTS written_at bigint NOT NULL DEFAULT 0;
UPDATE counter SET written_at = coalesce((SELECT written_at FROM log ORDER BY id DESC LIMIT 1), 0) WHERE written_at = 0;
