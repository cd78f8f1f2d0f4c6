package transactions

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"
	apiresource "k8s.io/apimachinery/pkg/api/resource"

	"github.com/sqube/sqube/sqlstore"
)

// Options are the settings of the resource. Make them with [NewOptions].
type Options struct {
	// Serve is whether the resource is served.
	Serve bool
	// MaxOperations is how many operations and requirements a transaction may have together.
	MaxOperations int
	// MaxBytes is how large its request may be, and the objects that it writes together.
	MaxBytes apiresource.QuantityValue
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{Serve: true, MaxOperations: 1000, MaxBytes: apiresource.QuantityValue{Quantity: apiresource.MustParse("16Mi")}}
}

// AddFlags adds the flags.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.Serve, "transactions", o.Serve, "Serve transactions of history.sqube.io/v1alpha1, with which clients commit several writes together or not at all.")
	fs.IntVar(&o.MaxOperations, "transaction-max-operations", o.MaxOperations, "How many operations and requirements a transaction may have together.")
	fs.Var(&o.MaxBytes, "transaction-max-bytes", "How large the request of a transaction may be, and the objects that it writes together. All open transactions together may take 8 times as much memory.")
}

// mostOperations keeps a transaction well below history.MaxTransactionRows, though an operation can write two rows.
const mostOperations = 4000

// Validate returns all problems with the flags as one error.
func (o *Options) Validate() error {
	var errs []error
	if o.MaxOperations < 1 || o.MaxOperations > mostOperations {
		errs = append(errs, fmt.Errorf("--transaction-max-operations %d must be between 1 and %d", o.MaxOperations, mostOperations))
	}
	if bytes := o.MaxBytes.Value(); bytes < 1<<20 || bytes > 1<<30 {
		errs = append(errs, fmt.Errorf("--transaction-max-bytes %s must be between 1Mi and 1Gi", o.MaxBytes.String()))
	}
	return errors.Join(errs...)
}

// limits returns the bounds of one transaction. Beside its objects, it may write those that admission writes for it, such as a quota, and
// require others, such as the addresses of Services.
func (o *Options) limits() sqlstore.TransactionLimits {
	return sqlstore.TransactionLimits{Objects: 4*o.MaxOperations + 100, Bytes: o.MaxBytes.Value()}
}
