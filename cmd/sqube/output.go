package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
)

// progressInterval is how often progress is shown.
const progressInterval = 200 * time.Millisecond

// progress shows the progress of a command on a terminal: the text that status returns from time to time. If the output is not a
// terminal it shows nothing. done ends it.
func progress(cmd *cobra.Command, status func() string) (done func()) {
	screen, ok := cmd.ErrOrStderr().(*os.File)
	if !ok {
		return func() {}
	}
	if info, err := screen.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return func() {}
	}
	stop := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		const clear = "\r\x1b[K"
		ticker := time.NewTicker(progressInterval)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				fmt.Fprint(screen, clear)
				return
			case <-ticker.C:
				fmt.Fprint(screen, clear, terminal.Printable(status()))
			}
		}
	})
	return func() {
		close(stop)
		running.Wait()
	}
}

// watchSize shows how a file grows.
func watchSize(cmd *cobra.Command, path string) (done func()) {
	return progress(cmd, func() string {
		info, err := os.Stat(path)
		if err != nil {
			return ""
		}
		return fmt.Sprintf("%s: %s", path, size(info.Size()))
	})
}

// size formats a number of bytes for people.
func size(bytes int64) string {
	switch {
	case bytes >= 10e9:
		return fmt.Sprintf("%d GB", bytes/1e9)
	case bytes >= 10e6:
		return fmt.Sprintf("%d MB", bytes/1e6)
	default:
		return fmt.Sprintf("%d kB", (bytes+999)/1e3)
	}
}

// table prints rows in columns, for a terminal.
type table struct{ writer *tabwriter.Writer }

func newTable(out io.Writer, heads ...string) table {
	t := table{tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)}
	t.row(heads...)
	return t
}

func (t table) row(cells ...string) {
	for i, cell := range cells {
		cells[i] = cmp.Or(terminal.Printable(cell), "-")
	}
	fmt.Fprintln(t.writer, strings.Join(cells, "\t"))
}

func (t table) end() error { return t.writer.Flush() }
