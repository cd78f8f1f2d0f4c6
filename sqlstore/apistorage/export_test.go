package apistorage

import "context"

// Unseal returns a stored value as the codec wrote it.
func Unseal(ctx context.Context, c Config, stored []byte, key string) ([]byte, error) {
	data, _, err := (&Storage{Config: c}).unseal(ctx, stored, key)
	return data, err
}
