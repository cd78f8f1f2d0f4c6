// Command rules checks the rules of this repository that no other linter covers: which packages import which, what is taken from
// the insides of Kubernetes, how long files and functions are, and that what the documents link to and name exists. Run it at the
// root of the repository.
package main

import (
	"fmt"
	"os"
)

func main() {
	failed := false
	for _, rule := range []func() ([]string, error){imports, internals, lengths, links, names} {
		violations, err := rule()
		if err != nil {
			fmt.Fprintln(os.Stderr, "rules:", err)
			os.Exit(1)
		}
		for _, v := range violations {
			fmt.Fprintln(os.Stderr, v)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}
