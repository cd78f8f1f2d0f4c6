package virtual

import (
	"os"
	"os/exec"
	"regexp"
	"testing"

	"github.com/sqube/sqube/server/servertest"
)

var races = map[string]func(t *testing.T, s *servertest.Server){"finalizer": protects, "child": makesOneChild}

// TestRaces checks that Explore finds the races in two controllers, that the seeds find them again, and that it finds nothing in the
// corrected controllers.
func TestRaces(t *testing.T) {
	for name, test := range races {
		t.Run(name, func(t *testing.T) {
			if planted {
				servertest.Explore(t, servertest.Exploration{}, test)
				return
			}
			servertest.Explore(t, servertest.Exploration{Seeds: 3}, test)
			found := plant(t, "^TestRaces$/^"+name+"$")
			once := regexp.MustCompile(`once more: go test \S+/virtual -run '(\S+)'`).FindSubmatch(found)
			if once == nil {
				t.Fatalf("no seed to run again:\n%s", found)
			}
			plant(t, string(once[1]), "-test.count=3") // what Go decides may differ once
		})
	}
}

// plant runs tests in a process whose controllers have a race, and returns what it prints when it finds the race.
func plant(t *testing.T, tests string, flags ...string) []byte {
	t.Helper()
	program := exec.CommandContext(t.Context(), os.Args[0], append(flags, "-test.run", tests)...)
	program.Env = append(os.Environ(), "PLANTED_RACE=1")
	output, err := program.CombinedOutput()
	if err == nil {
		t.Errorf("no race is found:\n%s", output)
	}
	return output
}
