package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// unmapCode unmaps the pages of the program's code. Almost all of them are mapped during startup, and a running server needs only
// some. They stay in the page cache, where the kernel can drop them when memory is scarce; needed pages are mapped again without a
// read.
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
		if !strings.HasSuffix(line, " "+program) || access[1] == 'w' { // written pages are not in the file
			continue
		}
		if _, _, errno := syscall.Syscall(syscall.SYS_MADVISE, from, to-from, syscall.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("madvise: %w", errno)
		}
	}
	return lines.Err()
}
