package apistorage

import "context"

// Reveal returns a stored value as the codec wrote it.
func Reveal(ctx context.Context, c Config, stored []byte, key string) ([]byte, error) {
	data, _, err := (&Storage{Config: c}).reveal(ctx, stored, key)
	return data, err
}
