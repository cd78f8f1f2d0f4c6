package sqlite

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// A write-ahead log is a header and frames, one for each page that a commit has changed (https://www.sqlite.org/fileformat2.html#walformat).
// The checksum of a frame continues that of the one before. SQLite reads up to the first frame that does not fit: usually the end, or
// what a crash has interrupted. But if the disk has damaged that frame, SQLite drops all commits behind it without a word.
//
// They can be told apart: a commit is on disk before the next one begins. So nothing follows an interrupted one, and if two commits follow
// a frame that does not fit, it was damaged.
const (
	walHeaderBytes   = 32
	frameHeaderBytes = 24
	walMagic         = 0x377f0682 // plus 1 if words are read in big-endian order
)

// walSum is a checksum of a write-ahead log.
type walSum [2]uint32

// add continues a checksum with data.
func (s walSum) add(order binary.ByteOrder, data []byte) walSum {
	for ; len(data) >= 8; data = data[8:] {
		s[0] += order.Uint32(data) + s[1]
		s[1] += order.Uint32(data[4:]) + s[0]
	}
	return s
}

func sumAt(data []byte) walSum {
	return walSum{binary.BigEndian.Uint32(data), binary.BigEndian.Uint32(data[4:])}
}

// checkWholeLog fails if the write-ahead log of the file at path has commits behind damage. Another process may be writing to it.
func checkWholeLog(path string) error {
	for {
		before, at, err := scanLog(path + "-wal")
		if errors.Is(err, fs.ErrNotExist) || err == nil && at < 0 {
			return nil
		}
		if err != nil {
			return err
		}
		if after, f, err := readLogHeader(path + "-wal"); errors.Is(err, fs.ErrNotExist) || err == nil && errors.Join(f.Close()) == nil && after != before {
			continue // it has begun anew meanwhile
		}
		return fmt.Errorf("%[1]s-wal is damaged at byte %[2]d: SQLite would drop the commits behind that. Restore a backup (sqube restore FILE --force); or go on without them: sqube restore %[1]s --force --datastore sqlite://%[1]s", path, at)
	}
}

func readLogHeader(log string) (header [walHeaderBytes]byte, f *os.File, err error) {
	if f, err = os.Open(log); err != nil {
		return header, nil, err
	}
	_, err = io.ReadFull(f, header[:])
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // there are no frames
		err = nil
	}
	return header, f, err
}

// scanLog returns the header of a write-ahead log, and where it is damaged, -1 if it is not.
func scanLog(log string) (header [walHeaderBytes]byte, at int64, err error) {
	header, f, err := readLogHeader(log)
	if err != nil {
		return header, -1, err
	}
	defer f.Close()
	order, sizes := binary.ByteOrder(binary.LittleEndian), []int{int(binary.BigEndian.Uint32(header[8:]))}
	if binary.BigEndian.Uint32(header[:]) == walMagic+1 {
		order = binary.BigEndian
	}
	sum := walSum{}.add(order, header[:24])
	valid := binary.BigEndian.Uint32(header[:])&^1 == walMagic && sum == sumAt(header[24:])
	if !valid {
		sizes = []int{newPageSize, 4096} // those that sqube's files have
	}
	for _, size := range sizes {
		if _, err := f.Seek(walHeaderBytes, io.SeekStart); err != nil {
			return header, -1, err
		}
		s := frames{order: order, size: size, whole: valid, sum: sum, salts: [8]byte(header[16:24])}
		if at, err := s.scan(bufio.NewReaderSize(f, 1<<20)); err != nil || at >= 0 {
			return header, at, err
		}
	}
	return header, -1, nil
}

// frames are those of a write-ahead log as they are read.
type frames struct {
	order binary.ByteOrder
	size  int    // of a page
	sum   walSum // that the last frame, or the header, says it has
	salts [8]byte
	whole bool // all fits so far
}

// scan returns where the log is damaged, -1 if it is not.
func (s *frames) scan(r io.Reader) (at int64, err error) {
	frame, committed := make([]byte, frameHeaderBytes+s.size), false
	if s.whole {
		at = -1
	}
	for n := int64(0); ; n++ {
		if _, err := io.ReadFull(r, frame); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return -1, nil
		} else if err != nil {
			return -1, err
		}
		fits := bytes.Equal(frame[8:16], s.salts[:]) && s.sum.add(s.order, frame[:8]).add(s.order, frame[frameHeaderBytes:]) == sumAt(frame[16:])
		switch {
		case s.whole && !fits:
			s.whole, at = false, walHeaderBytes+n*int64(len(frame))
		case !s.whole && fits && committed:
			return at, nil
		}
		committed = !s.whole && fits && binary.BigEndian.Uint32(frame[4:]) != 0
		s.sum = sumAt(frame[16:])
		if at == 0 { // the header is damaged, so frames have only each other
			s.salts = [8]byte(frame[8:16])
		}
	}
}
