package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/server/transaction"
)

// confirmFlags are the flags of commands whose transactions can be taken back by the server.
type confirmFlags struct {
	within        time.Duration
	unlessHealthy bool
}

func (f *confirmFlags) addFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&f.within, "confirm-within", 0, "Have the server take everything back unless you confirm it by then, such as 10m: with sqube confirm, or on a terminal by pressing y.")
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
		fmt.Fprintf(out, "To keep this, confirm it by %s: %s confirm %s\n", r.Deadline.Format(time.TimeOnly), command, r.Name)
	}
}

// undoHint says how a transaction is taken back.
func undoHint(out io.Writer, command string, r *transaction.Result) {
	fmt.Fprintf(out, "To take this back: %s undo --transaction %s\n", command, r.Name)
}

// confirm confirms a transaction, and says so.
func confirm(ctx context.Context, client *transaction.Client, out io.Writer, name string) error {
	if _, err := client.Confirm(ctx, name); err != nil {
		return terminal.OneLine(err)
	}
	fmt.Fprintf(out, "%s is confirmed\n", terminal.Printable(name))
	return nil
}

// confirmByKey confirms transactions that must be confirmed if somebody presses a key, on a terminal. Otherwise they can be confirmed later.
func confirmByKey(ctx context.Context, client *transaction.Client, in io.Reader, out io.Writer, results ...*transaction.Result) error {
	file, ok := in.(*os.File)
	if !ok || !onTerminal(in) || len(results) == 0 || results[0].Deadline == nil {
		return nil
	}
	fmt.Fprint(out, "Press y to confirm now, or any other key to end. ")
	key, err := pressed(file)
	fmt.Fprintln(out)
	if err != nil || key != 'y' && key != 'Y' {
		return nil
	}
	for _, r := range results {
		if err := confirm(ctx, client, out, r.Name); err != nil {
			return err
		}
	}
	return nil
}

// pressed returns the key that is pressed on a terminal.
func pressed(file *os.File) (key byte, err error) {
	before, err := term.MakeRaw(int(file.Fd()))
	if err != nil {
		return 0, err
	}
	defer func() { _ = term.Restore(int(file.Fd()), before) }() // a terminal that is gone needs no settings
	one := make([]byte, 1)
	_, err = file.Read(one)
	return one[0], err
}
