// Package memlimit determines how much memory a process may use.
package memlimit

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// Available returns how many bytes of memory this process may use: the memory of the machine, or the lowest limit of its cgroup
// (version 1 or 2) and the parents of that. It returns 0 if unknown. root is "/" except in tests.
func Available(root string) int64 {
	least := total(filepath.Join(root, "proc/meminfo"))
	for _, file := range limits(filepath.Join(root, "proc/self/cgroup")) {
		if n := number(filepath.Join(root, "sys/fs/cgroup", file)); n > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	return least
}

// total reads the first line of a file, "MemTotal: 1024 kB". It returns 0 for anything else, and if there is no file.
func total(file string) int64 {
	text, _ := os.ReadFile(file)
	var kb int64
	_, _ = fmt.Sscanf(string(text), "MemTotal: %d kB", &kb)
	return kb << 10
}

// limits returns the files with the limits of the cgroups in a file whose lines are "number:controllers:path" (cgroups(7)).
func limits(file string) (files []string) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		dir, name := "", "memory.max"
		switch {
		case parts[1] == "":
		case parts[1] == "memory":
			dir, name = "memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for group := path.Clean("/" + parts[2]); ; group = path.Dir(group) {
			files = append(files, path.Join(dir, group, name))
			if group == "/" {
				break
			}
		}
	}
	return files
}

// number reads a file with a number. It returns 0 for anything else, such as "max", and if there is no file: containers don't see
// the groups above their own.
func number(file string) int64 {
	text, _ := os.ReadFile(file)
	n, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n
}
