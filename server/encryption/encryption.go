// Package encryption encrypts objects on their way to the database and decrypts them on their way back, as the
// EncryptionConfiguration says that --encryption-provider-config names. Providers, keys, wildcards, KMS plugins, reload
// and health checks are kube-apiserver's own code.
//
// What the database holds of an encrypted object in the clear is what finds its row and what the log says of every
// write: group, resource, namespace, name, uid, time, author. Labels and the fields that selectors can name are not
// kept beside it, so selectors are decided on the decrypted objects; see package apistorage. In memory objects are in the
// clear, like kube-apiserver.
//
// An object is decrypted only where it was written: the key of its row is authenticated with it, by the providers
// that authenticate (aesgcm and KMS).
//
// A new configuration holds for what is written from then on. Objects are rewritten by any update, also one that changes
// nothing, or by a StorageVersionMigration. What an object was before is kept as long as all superseded versions
// are, and free pages of the database may hold it for longer.
package encryption

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig/controller"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig/metrics"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	"github.com/sqube/sqube/server/decorate"
)

// Encryption is a loaded configuration.
type Encryption struct {
	transformers value.ResourceTransformers // nil if nothing is encrypted
	checks       []healthz.HealthChecker
	close        context.CancelFunc
}

// reloadPeriod is how often AutomaticReload reads the file; upstream does once a minute.
const reloadPeriod = 10 * time.Second

// Load reads the configuration, connects to the KMS plugins that it names and, with AutomaticReload, starts to look
// for changes. All that ends with Close. A plugin that does not answer is no error, but fails the health checks. The id
// of the server is put into metrics.
func Load(o Options, serverID string) (*Encryption, error) {
	if o.ConfigFile == "" {
		return &Encryption{close: func() {}}, nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	config, err := o.load(ctx, serverID)
	if err != nil {
		cancel()
		return nil, err
	}
	metrics.RecordEncryptionConfigLastConfigInfo(serverID, config.EncryptionFileContentHash)
	if !o.AutomaticReload {
		return &Encryption{encryptionconfig.StaticTransformers(config.Transformers), config.HealthChecks, cancel}, nil
	}
	// What was loaded first ends with the first reload.
	dynamic := encryptionconfig.NewDynamicTransformers(config.Transformers, config.HealthChecks[0], cancel, config.KMSCloseGracePeriod)
	controller.EncryptionConfigFileChangePollDuration = reloadPeriod
	running, stop := context.WithCancel(context.Background())
	go controller.NewDynamicEncryptionConfiguration("encryption-provider-config-automatic-reload-controller",
		o.ConfigFile, dynamic, config.EncryptionFileContentHash, serverID).Run(running)
	return &Encryption{dynamic, []healthz.HealthChecker{dynamic}, func() { stop(); cancel() }}, nil
}

// Close ends the connections to KMS plugins. What they encrypted can no longer be read after.
func (e *Encryption) Close() { e.close() }

// HealthChecks tell whether the KMS plugins work: kms-providers, or kms-provider-0 and so on where there are plugins of
// version 1. As in kube-apiserver they belong to /healthz and /readyz.
func (e *Encryption) HealthChecks() []healthz.HealthChecker { return e.checks }

// Transformer returns what encrypts and decrypts the objects of a resource.
func (e *Encryption) Transformer(resource schema.GroupResource) value.Transformer {
	if e.transformers == nil {
		return identity.NewEncryptCheckTransformer()
	}
	return e.transformers.TransformerForResource(resource)
}

// Storage returns a decorator whose storages encrypt what they store; otherwise they are those of next.
func (e *Encryption) Storage(next generic.StorageDecorator) generic.StorageDecorator {
	if e.transformers == nil {
		return next
	}
	return decorate.Config(next, func(c *storagebackend.ConfigForResource) { c.Transformer = e.Transformer(c.GroupResource) })
}
