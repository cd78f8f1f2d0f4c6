// Package encryption encrypts objects on their way to the database and decrypts them on their way back, according to the
// EncryptionConfiguration in --encryption-provider-config. Providers, keys, wildcards, KMS plugins, reload and health checks
// are kube-apiserver's own code.
//
// The database has some columns of an encrypted object in plain text: group, resource, namespace, name, uid, time and author. Labels and
// selectable fields are not stored, so selectors are evaluated on the decrypted objects; see package apistorage. In memory, objects
// are not encrypted, as in kube-apiserver.
//
// An encrypted value can't be moved to another row: authenticating providers (aesgcm and KMS) authenticate the key of the row too.
//
// A new configuration applies to new writes. Objects are rewritten by any update, even one that changes nothing, or by a
// StorageVersionMigration. Replaced versions are kept like those of other objects, and free pages of the database may contain
// them for longer.
package encryption

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
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

// reloadPeriod is how often AutomaticReload reads the file; upstream reads it once a minute.
const reloadPeriod = 10 * time.Second

// Load reads the configuration, connects to its KMS plugins and, with AutomaticReload, watches for changes, until Close. A plugin that
// does not respond is not an error, but fails the health checks. serverID is for metrics.
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
	// The first reload closes the initial configuration.
	dynamic := encryptionconfig.NewDynamicTransformers(config.Transformers, config.HealthChecks[0], cancel, config.KMSCloseGracePeriod)
	controller.EncryptionConfigFileChangePollDuration = reloadPeriod
	running, stop := context.WithCancel(context.Background())
	go controller.NewDynamicEncryptionConfiguration("encryption-provider-config-automatic-reload-controller",
		o.ConfigFile, dynamic, config.EncryptionFileContentHash, serverID).Run(running)
	return &Encryption{dynamic, []healthz.HealthChecker{dynamic}, func() { stop(); cancel() }}, nil
}

// Close closes the connections to KMS plugins. After that, objects that they encrypted can't be read.
func (e *Encryption) Close() { e.close() }

// HealthChecks are the checks of the KMS plugins: kms-providers, or kms-provider-0 and so on for plugins of version 1. As in
// kube-apiserver they are part of /healthz and /readyz.
func (e *Encryption) HealthChecks() []healthz.HealthChecker { return e.checks }

// Transformer returns the transformer that encrypts and decrypts the objects of a resource.
func (e *Encryption) Transformer(resource schema.GroupResource) value.Transformer {
	if e.transformers == nil {
		return identity.NewEncryptCheckTransformer()
	}
	return e.transformers.TransformerForResource(resource)
}

// ErrNoConfig means that a value is encrypted, but no configuration was given.
var ErrNoConfig = errors.New("it is encrypted: give the file that its server has with --" + configFlag)

// Explain returns why a value can't be decrypted, given the error of its transformer: [ErrNoConfig] without a configuration.
func (e *Encryption) Explain(err error) error {
	if e.transformers == nil {
		return ErrNoConfig
	}
	return fmt.Errorf("it is encrypted, and --%s can't decrypt it: %w", configFlag, err)
}

// Storage returns a decorator that makes the same storages as next, except that they encrypt objects.
func (e *Encryption) Storage(next generic.StorageDecorator) generic.StorageDecorator {
	if e.transformers == nil {
		return next
	}
	return decorate.Config(next, func(c *storagebackend.ConfigForResource) { c.Transformer = e.Transformer(c.GroupResource) })
}

// Options are kube-apiserver's flags of the same names.
type Options struct {
	// ConfigFile is an EncryptionConfiguration, or "" to encrypt nothing.
	ConfigFile string
	// AutomaticReload checks every few seconds whether the file has changed.
	AutomaticReload bool
}

// AddFlags adds the flags.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.ConfigFile, configFlag, "", "File with an EncryptionConfiguration: which resources to encrypt in the database, and how.")
	fs.BoolVar(&o.AutomaticReload, "encryption-provider-config-automatic-reload", false, "Check every 10 seconds whether the file of --"+configFlag+" has changed, and reload it. The health checks of all KMS plugins become one, kms-providers.")
}

const configFlag = "encryption-provider-config"

// Validate reads the file without connecting to any KMS plugin. Errors name the flag that has to change, or the problem in the
// file.
func (o *Options) Validate() error {
	if o.ConfigFile == "" {
		if o.AutomaticReload {
			return errors.New("--encryption-provider-config-automatic-reload must be set with --" + configFlag)
		}
		return nil
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := o.load(ended, "")
	return err
}

// load reads the file and starts its providers, until ctx ends.
func (o *Options) load(ctx context.Context, serverID string) (*encryptionconfig.EncryptionConfiguration, error) {
	config, err := encryptionconfig.LoadEncryptionConfig(ctx, o.ConfigFile, o.AutomaticReload, serverID)
	if err != nil {
		return nil, fmt.Errorf("--%s %s: %w", configFlag, o.ConfigFile, err)
	}
	return config, nil
}
