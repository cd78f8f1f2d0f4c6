package accuracy

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"testing"
)

// TestMain lets all scenarios run at once, since they wait more than they work. The servers on what trials have saved would log that its time is
// ahead.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "100"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}
