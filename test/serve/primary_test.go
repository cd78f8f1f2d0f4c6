package serve

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/harness"
)

// TestCommandsFindThePrimary gives commands the address of a standby, followed by that of the primary: commands that write use
// the primary, and those that read do so if the DSN requests it.
func TestCommandsFindThePrimary(t *testing.T) {
	t.Parallel()
	primary := harness.NewPostgresServer(t)
	standby := primary.Standby(t)
	host := harness.ParseDSN(t, primary.DSN()).Host
	both := strings.Replace(primary.DSN(), host, harness.ParseDSN(t, standby.DSN()).Host+","+host, 1)
	backup := filepath.Join(t.TempDir(), "backup")
	for _, c := range []struct {
		command []string
		writes  bool
	}{
		{[]string{"migrate", "up"}, true},
		{[]string{"migrate", "status"}, false},
		{[]string{"check"}, false},
		{[]string{"check", "--repair"}, true},
		{[]string{"backup", backup}, false},
		{[]string{"restore", backup, "--force"}, true},
		{[]string{"restore", primary.DSN(), "--force"}, true},
	} {
		if c.writes {
			succeeds(t, append(c.command, "--datastore", both))
		}
		succeeds(t, append(c.command, "--datastore", both+"&target_session_attrs=read-write"))
	}
}
