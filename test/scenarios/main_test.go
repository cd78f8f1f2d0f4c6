package scenarios

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// TestMain lets more scenarios run at once than there are CPUs, since they wait more than they work.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "12"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Exit(m.Run())
}
