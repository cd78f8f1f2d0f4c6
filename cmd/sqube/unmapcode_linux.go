package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// unmapCode takes the pages of the program itself out of the process, which a start has mapped almost all of and a running
// server needs a part of. They stay in the page cache, where the kernel can drop them when memory is scarce; those that
// are needed come back one by one without a read.
func unmapCode() error {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return err
	}
	defer maps.Close()
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		var from, to uintptr
		var access string
		line := lines.Text()
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &access); err != nil {
			return fmt.Errorf("/proc/self/maps: %q: %w", line, err)
		}
		if !strings.HasSuffix(line, " "+program) || access[1] == 'w' { // what was written is nowhere else
			continue
		}
		if _, _, errno := syscall.Syscall(syscall.SYS_MADVISE, from, to-from, syscall.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("madvise: %w", errno)
		}
	}
	return lines.Err()
}
