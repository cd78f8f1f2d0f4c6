package main

import "golang.org/x/sys/unix"

// freeSpace returns how many bytes of the file system of a folder this user may still use.
func freeSpace(dir string) (int64, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return 0, err
	}
	return int64(min(stat.Bavail*uint64(stat.Bsize), 1<<62)), nil
}
