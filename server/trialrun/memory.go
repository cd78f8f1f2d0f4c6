package trialrun

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// freeMemory returns how many bytes a further process may use: those of the machine, or of the cgroup of this one and the parents of that. It
// returns 0 if that is not known. root is "/" except in tests.
func freeMemory(root string) int64 {
	free := int64(0)
	text, _ := os.ReadFile(filepath.Join(root, "proc/meminfo"))
	if _, rest, found := bytes.Cut(text, []byte("MemAvailable:")); found {
		_, _ = fmt.Sscanf(string(rest), "%d kB", &free)
		free <<= 10
	}
	group, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	_, path, found := bytes.Cut(bytes.TrimSpace(group), []byte("0::"))
	if !found {
		return free
	}
	for path := string(path); ; path = filepath.Dir(path) {
		dir := filepath.Join(root, "sys/fs/cgroup", path)
		if limit := number(dir, "memory.max"); limit > 0 {
			if left := max(1, limit-number(dir, "memory.current")+cached(dir)); free == 0 || left < free {
				free = left
			}
		}
		if path == "/" || path == "." {
			return free
		}
	}
}

// cached returns how many bytes of a cgroup are files that the kernel can drop.
func cached(dir string) (n int64) {
	text, _ := os.ReadFile(filepath.Join(dir, "memory.stat"))
	if _, rest, found := bytes.Cut(text, []byte("\ninactive_file ")); found {
		_, _ = fmt.Sscan(string(rest), &n)
	}
	return n
}

func number(dir, file string) int64 {
	text, _ := os.ReadFile(filepath.Join(dir, file))
	n, _ := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	return n
}

// limitMemory ends a process that takes more memory than it may, until it has ended: the server shall not. Should the system need to end one
// of the two before, it is this one.
func limitMemory(pid int, ended <-chan struct{}, end func(error)) {
	dir := fmt.Sprintf("/proc/%d", pid)
	_ = os.WriteFile(filepath.Join(dir, "oom_score_adj"), []byte("1000"), 0)
	limit := min(int64(mostMemory), freeMemory("/")*3/4)
	for limit > 0 {
		select {
		case <-ended:
			return
		case <-time.After(100 * time.Millisecond):
		}
		var size, resident int64
		text, _ := os.ReadFile(filepath.Join(dir, "statm"))
		_, _ = fmt.Sscan(string(text), &size, &resident)
		if resident*int64(os.Getpagesize()) > limit {
			end(fmt.Errorf("it needs more than %d MiB of memory, which is what it may have here: run sqube try on a larger machine", limit>>20))
			return
		}
	}
}
