package sqlite

import (
	"encoding/binary"
	"hash/fnv"

	"golang.org/x/sys/unix"
)

// fileNumber returns a number, other than 0 and without openBit, that hardly any other file has: by its inode and when that was created.
func fileNumber(path string) int32 {
	var info unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_INO|unix.STATX_BTIME, &info); err != nil {
		return unknownFile
	}
	hash := fnv.New32a()
	_ = binary.Write(hash, binary.BigEndian, []uint64{info.Ino, uint64(info.Btime.Sec), uint64(info.Btime.Nsec)}) // never fails
	return int32(hash.Sum32())&^openBit | unknownFile
}
