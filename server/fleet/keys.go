package fleet

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/sqube/sqube/sqlstore"
)

// secretResource has the secret of the fleet, which is no object of the API.
var secretResource = sqlstore.Resource{Group: sqlstore.InternalGroup, Name: "fleet_secret"}

const (
	secretName = "fleet"
	secretSize = 32
)

// secretOf returns the secret of the fleet, which is in the host's database. It encrypts the keys of clusters in their databases, so that a copy
// of a cluster's database alone is worth nothing, and proves passes.
func secretOf(ctx context.Context, store *sqlstore.Store) ([]byte, error) {
	for {
		record, _, err := store.Get(ctx, secretResource, secretName)
		if err != nil {
			return nil, fmt.Errorf("reading the secret of the fleet: %w", err)
		}
		if record != nil {
			return base64.StdEncoding.DecodeString(string(record.Value))
		}
		secret := make([]byte, secretSize)
		_, _ = rand.Read(secret)                          // never fails
		text := base64.StdEncoding.EncodeToString(secret) // Postgres stores text
		w := sqlstore.Internal(secretResource, secretName, nil, []byte(text))
		w.UID = secretName
		if _, err := store.Write(ctx, w); err != nil && !errors.Is(err, sqlstore.ErrConflict) {
			return nil, fmt.Errorf("writing the secret of the fleet: %w", err)
		}
	}
}
