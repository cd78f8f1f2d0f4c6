package main

import (
	"context"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sqube/sqube/server/encryption"
	"github.com/sqube/sqube/server/resources"
	"github.com/sqube/sqube/server/sharedkeys"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage"
)

func decrypt(ctx context.Context, keys *encryption.Encryption, r sqlstore.Resource, key string, stored []byte) ([]byte, error) {
	if r == sharedkeys.Resource { // encrypted with another key, and valid JSON as stored
		return stored, nil
	}
	resource := schema.GroupResource{Group: r.Group, Resource: r.Name}
	data, _, err := apistorage.Decrypt(ctx, keys.Transformer(resource), stored, resources.KeyPrefix(resource)+"/"+key)
	if err != nil {
		return nil, keys.Explain(err)
	}
	return data, nil
}

// addEncryptionFlag adds --encryption-provider-config to a command that reads once.
func addEncryptionFlag(cmd *cobra.Command, o *encryption.Options) {
	o.AddFlags(cmd.Flags())
	_ = cmd.Flags().MarkHidden("encryption-provider-config-automatic-reload") // AddFlags has added it
}
