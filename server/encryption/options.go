package encryption

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
)

// Options are kube-apiserver's flags of the same names.
type Options struct {
	// ConfigFile is an EncryptionConfiguration, or "" to encrypt nothing.
	ConfigFile string
	// AutomaticReload looks every few seconds whether the file has changed.
	AutomaticReload bool
}

// AddFlags adds the flags.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.ConfigFile, configFlag, "", "File with an EncryptionConfiguration: which resources to encrypt in the database, and how.")
	fs.BoolVar(&o.AutomaticReload, "encryption-provider-config-automatic-reload", false, "Check every 10 seconds whether the file of --"+configFlag+" has changed, and reload it. The health checks of all KMS plugins become one, kms-providers.")
}

const configFlag = "encryption-provider-config"

// Validate reads the file without connecting to any KMS plugin. An error names the flag that has to change, or what is
// wrong with the file.
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

// load reads the file and starts what it takes, until ctx ends.
func (o *Options) load(ctx context.Context, serverID string) (*encryptionconfig.EncryptionConfiguration, error) {
	config, err := encryptionconfig.LoadEncryptionConfig(ctx, o.ConfigFile, o.AutomaticReload, serverID)
	if err != nil {
		return nil, fmt.Errorf("--%s %s: %w", configFlag, o.ConfigFile, err)
	}
	return config, nil
}
