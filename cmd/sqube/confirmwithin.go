package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"

	"github.com/sqube/sqube/server/transaction"
)

// confirmFlags are the flags of commands whose transactions can be taken back by the server.
type confirmFlags struct {
	within        time.Duration
	unlessHealthy bool
}

func (f *confirmFlags) addFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&f.within, "confirm-within", 0, "Have the server take everything back unless you confirm it (sqube confirm) by then, such as 10m.")
	fs.BoolVar(&f.unlessHealthy, "unless-healthy", false, "With --confirm-within, it is also confirmed if everything that was written is at rest and healthy by then.")
}

func (f *confirmFlags) check() error {
	if f.unlessHealthy && f.within == 0 {
		return errors.New("--unless-healthy is for --confirm-within")
	}
	return nil
}

// set sets them in a transaction.
func (f *confirmFlags) set(t *transaction.Transaction) {
	t.ConfirmWithin, t.UnlessHealthy = f.within, f.unlessHealthy
}

// confirmHint says until when a transaction must be confirmed, if it must, and how.
func confirmHint(out io.Writer, command string, r *transaction.Result) {
	if r.Deadline != nil {
		fmt.Fprintf(out, "To keep this, confirm it until %s: %s confirm %s\n", r.Deadline.Format(time.TimeOnly), command, r.Name)
	}
}
