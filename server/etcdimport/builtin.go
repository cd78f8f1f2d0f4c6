package etcdimport

import (
	"github.com/sqube/sqube/server/builtin"
	"github.com/sqube/sqube/server/encryption"
)

// builtIn returns all built-in resources by the paths under which kube-apiserver stores their objects.
func builtIn(keys *encryption.Encryption) (map[string]*resource, error) {
	built, err := builtin.New(keys.Storage)
	if err != nil {
		return nil, err
	}
	byPath := map[string]*resource{}
	for name, s := range built.Storages {
		byPath[built.Options.EtcdPath(name)] = &resource{name, s}
	}
	return byPath, nil
}
