package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// tick is the unit of the times in /proc/PID/stat: USER_HZ, which is 100 on every architecture that Go runs on.
const tick = 10 * time.Millisecond

// processStat is what the benchmark needs from /proc/PID/stat (proc_pid_stat(5)).
type processStat struct {
	parent   int
	children time.Duration // user and system time of the children it has waited for
}

func readStat(pid int) (processStat, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return processStat{}, fmt.Errorf("CPU time of process %d: %w", pid, err)
	}
	// The command's name is in parentheses and may contain anything, so fields are counted from the last parenthesis.
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	if len(fields) < 15 {
		return processStat{}, fmt.Errorf("/proc/%d/stat has %d fields after the name, not 15 or more", pid, len(fields))
	}
	number := func(i int) int64 {
		n, parseErr := strconv.ParseInt(fields[i], 10, 64)
		err = errors.Join(err, parseErr)
		return n
	}
	s := processStat{
		parent:   int(number(1)),
		children: time.Duration(number(13)+number(14)) * tick,
	}
	return s, err
}

// cpuTime returns the user and system time that the processes have used since they started.
func cpuTime(pids []int) (time.Duration, error) {
	var total time.Duration
	for _, pid := range pids {
		used, err := cpuClock(pid)
		if err != nil {
			return 0, err
		}
		total += used
	}
	return total, nil
}

// cpuClock reads the CPU-time clock of a process with all its threads (clock_getcpuclockid(3)). It counts nanoseconds, whereas
// /proc/PID/stat counts ticks of 10 ms.
func cpuClock(pid int) (time.Duration, error) {
	const scheduler = 2 // CPUCLOCK_SCHED of the kernel: user and system time
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduler), &t); err != nil {
		return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// treeCPUTime returns the user and system time of a process and all its children, including ended ones. It is for Postgres,
// which has a process per connection. It returns 0 if root is 0.
func treeCPUTime(root int) (time.Duration, error) {
	if root == 0 {
		return 0, nil
	}
	s, err := readStat(root)
	if err != nil {
		return 0, err
	}
	own, err := cpuClock(root)
	if err != nil {
		return 0, err
	}
	total := own + s.children
	children, err := childrenOf(root)
	if err != nil {
		return 0, err
	}
	for _, pid := range children {
		used, err := cpuClock(pid)
		if errors.Is(err, unix.EINVAL) {
			continue // ended meanwhile
		}
		if err != nil {
			return 0, err
		}
		total += used
	}
	return total, nil
}

// childrenOf returns the running child processes of parent.
func childrenOf(parent int) (pids []int, err error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue // /proc has more than processes
		}
		child, err := readStat(pid)
		switch {
		case ended(err):
		case err != nil:
			return nil, err
		case child.parent == parent:
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// ended reports whether a file of /proc could not be read because its process has ended, before the file was opened or since.
func ended(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }

// memory is the memory of processes in bytes.
type memory struct {
	RSS       int64 // resident, including pages of the binary and of mapped files
	Anonymous int64 // resident and not backed by a file: heap and stacks
}

func (m *memory) add(more memory) {
	m.RSS += more.RSS
	m.Anonymous += more.Anonymous
}

// memory returns the memory of the server, with Postgres', and Postgres' part of it.
func (s *server) memory() (all, database memory, err error) {
	if all, err = readMemory(s.PIDs); err != nil {
		return all, database, err
	}
	database, err = treeMemory(s.Database)
	all.add(database)
	return all, database, err
}

// readMemory adds up /proc/PID/status of the processes.
func readMemory(pids []int) (total memory, err error) {
	for _, pid := range pids {
		own, err := kilobytes(pid, "status")
		if err != nil {
			return total, err
		}
		total.add(memory{RSS: own["VmRSS"], Anonymous: own["RssAnon"]})
	}
	return total, nil
}

// treeMemory returns the memory of a process and its children, 0 if root is 0. A page that n processes have counts for each of them as an
// nth (PSS), since Postgres' processes share most of theirs: its buffers, which count as anonymous here.
func treeMemory(root int) (total memory, err error) {
	if root == 0 {
		return total, nil
	}
	pids, err := childrenOf(root)
	if err != nil {
		return total, err
	}
	for _, pid := range append(pids, root) {
		own, err := kilobytes(pid, "smaps_rollup")
		if ended(err) && pid != root {
			continue
		}
		if err != nil {
			return total, err
		}
		total.add(memory{RSS: own["Pss"], Anonymous: own["Pss_Anon"] + own["Pss_Shmem"]})
	}
	return total, nil
}

// kilobytes reads a file of /proc/PID and returns its lines that are in kB, in bytes.
func kilobytes(pid int, file string) (map[string]int64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		return nil, fmt.Errorf("memory of process %d: %w", pid, err)
	}
	found := map[string]int64{}
	for line := range strings.Lines(string(raw)) {
		name, value, _ := strings.Cut(line, ":")
		number, isKB := strings.CutSuffix(strings.TrimSpace(value), " kB")
		if !isKB {
			continue
		}
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("/proc/%d/%s: %w", pid, file, err)
		}
		found[name] = n << 10
	}
	return found, nil
}
