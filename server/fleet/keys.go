package fleet

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/sqube/sqube/server/sharedkeys"
	"github.com/sqube/sqube/sqlstore"
)

// secretResource has the secret of the fleet, which is no object of the API.
var secretResource = sqlstore.Resource{Group: sqlstore.InternalGroup, Name: "fleet_secret"}

const (
	secretName = "fleet"
	secretSize = 32
)

// newSealer returns what encrypts the keys of clusters in their databases, with a secret that is in the host's database. So a copy of a
// cluster's database alone is worth nothing.
func newSealer(ctx context.Context, store *sqlstore.Store) (*sharedkeys.Sealer, error) {
	for {
		record, _, err := store.Get(ctx, secretResource, secretName)
		if err != nil {
			return nil, fmt.Errorf("reading the secret of the fleet: %w", err)
		}
		if record != nil {
			return sharedkeys.NewSealer(record.Value)
		}
		secret := make([]byte, secretSize)
		_, _ = rand.Read(secret) // never fails
		w := sqlstore.Internal(secretResource, secretName, nil, secret)
		w.UID = secretName
		if _, err := store.Write(ctx, w); err != nil && !errors.Is(err, sqlstore.ErrConflict) {
			return nil, fmt.Errorf("writing the secret of the fleet: %w", err)
		}
	}
}
