package encryption

import (
	"errors"

	"github.com/spf13/pflag"
)

// Options are kube-apiserver's flags of the same names.
type Options struct {
	// ConfigFile is an EncryptionConfiguration, or "" to encrypt nothing.
	ConfigFile string
	// AutomaticReload looks every minute whether the file has changed.
	AutomaticReload bool
}

// AddFlags adds the flags.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.ConfigFile, configFlag, "", "File with an EncryptionConfiguration: which resources are encrypted in the database, and how.")
	fs.BoolVar(&o.AutomaticReload, "encryption-provider-config-automatic-reload", false, "Look every minute whether the file of --"+configFlag+" has changed, and use what it says then. The health checks of all KMS plugins become one, kms-providers.")
}

const configFlag = "encryption-provider-config"

// Validate returns an error that names the flag that has to change.
func (o *Options) Validate() error {
	if o.AutomaticReload && o.ConfigFile == "" {
		return errors.New("--encryption-provider-config-automatic-reload must be set with --" + configFlag)
	}
	return nil
}
