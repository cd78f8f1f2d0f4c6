package logbackup

import (
	"os"
	"os/exec"
	"testing"

	"github.com/sqube/sqube/test/harness"
)

func TestLeaseOfAnEndedProcess(t *testing.T) {
	own := newLease()
	if own.Processes == "" {
		t.Fatal("it is unknown where its process id belongs")
	}
	ended := exec.Command("true")
	harness.Must(t, ended.Run())
	for name, test := range map[string]struct {
		former lease
		gone   bool
	}{
		"another ended":        {lease{Process: ended.Process.Pid, Processes: own.Processes}, true},
		"this one's id":        {lease{Process: os.Getpid(), Processes: own.Processes}, true},
		"a running one":        {lease{Process: os.Getppid(), Processes: own.Processes}, false},
		"of another container": {lease{Process: os.Getpid(), Processes: "elsewhere", Host: own.Host}, false},
		"of an older sqube":    {lease{Process: os.Getpid(), Host: own.Host}, false},
	} {
		if gone := own.gone(&test.former); gone != test.gone {
			t.Errorf("%s: gone is %t", name, gone)
		}
	}
}
