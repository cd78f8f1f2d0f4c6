package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// files lists the files of the repository that match the git patterns, including uncommitted ones.
func files(patterns ...string) ([]string, error) {
	args := append([]string{"ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"}, patterns...)
	output, err := exec.Command("git", args...).Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	var found []string
	for _, name := range strings.Split(strings.TrimSuffix(string(output), "\x00"), "\x00") {
		if _, err := os.Stat(name); err == nil { // not deleted since the last commit
			found = append(found, name)
		}
	}
	return found, nil
}
