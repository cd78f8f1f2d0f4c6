package accuracy

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// TestMain lets all scenarios run at once, since they wait more than they work.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "100"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Exit(m.Run())
}
