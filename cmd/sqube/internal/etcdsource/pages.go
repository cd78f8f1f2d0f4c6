package etcdsource

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// pages reads the B+trees of a bbolt file. Unlike bbolt, which maps the file and trusts it, it checks every offset, so a damaged file is an
// error. (bbolt: internal/common.)
type pages struct {
	f        *os.File
	fileSize uint64
	size     uint64 // of a page
	end      uint64 // the number of pages
	root     uint64 // the page of the bucket of buckets
}

// bucket is a tree: its root page, or a leaf page that is stored in its place.
type bucket struct {
	root   uint64
	inline []byte
}

const (
	pageHeader  = 16
	metaBytes   = 64
	elementSize = 16
	branchPage  = 1
	leafPage    = 2
	bucketLeaf  = 1 // the flag of an element whose value is a bucket
	boltMagic   = 0xED0CDAED
	boltVersion = 2
)

func damaged(format string, args ...any) error {
	return fmt.Errorf("the snapshot is damaged: "+format, args...)
}

// openPages opens a file. It waits up to openTimeout for a process that has it open for writing.
func openPages(path string) (_ *pages, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	for deadline := time.Now().Add(openTimeout); ; time.Sleep(openTimeout / 20) {
		err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(deadline) {
			return nil, fmt.Errorf("locking it: %w: stop the etcd that uses it", err)
		}
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	p := &pages{f: f, fileSize: uint64(info.Size())}
	return p, p.readMeta()
}

// readMeta reads the newer of the two meta pages, the first two pages of the file.
func (p *pages) readMeta() error {
	var newest uint64
	read := func(at, size uint64) error {
		page := make([]byte, pageHeader+metaBytes)
		if _, err := p.f.ReadAt(page, int64(at)); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		meta, u32, u64 := page[pageHeader:], binary.LittleEndian.Uint32, binary.LittleEndian.Uint64
		sum := fnv.New64a()
		sum.Write(meta[:56])
		if u32(meta) != boltMagic || u32(meta[4:]) != boltVersion || u64(meta[56:]) != sum.Sum64() || size != 0 && uint64(u32(meta[8:])) != size {
			return nil
		}
		if id := u64(meta[48:]); p.size == 0 || id > newest {
			newest, p.size, p.root, p.end = id, uint64(u32(meta[8:])), u64(meta[16:]), u64(meta[40:])
		}
		return nil
	}
	if err := read(0, 0); err != nil {
		return err
	}
	for size := uint64(512); size <= 1<<16; size *= 2 {
		if err := read(size, size); err != nil {
			return err
		}
	}
	if p.size < 512 || p.size > 1<<16 {
		return damaged("it has no valid header, or is not a snapshot of etcd 3")
	}
	return nil
}

// page returns a page with its overflow.
func (p *pages) page(id uint64) ([]byte, error) {
	if id < 2 || id >= p.end || id >= p.fileSize/p.size {
		return nil, damaged("page %d is not in the file", id)
	}
	header := make([]byte, pageHeader)
	if _, err := p.f.ReadAt(header, int64(id*p.size)); err != nil {
		return nil, damaged("page %d: %w", id, err)
	}
	more := uint64(binary.LittleEndian.Uint32(header[12:]))
	if own := binary.LittleEndian.Uint64(header); own != id || id+more >= p.end || id+more >= p.fileSize/p.size {
		return nil, damaged("page %d calls itself %d and has %d more", id, own, more)
	}
	data := make([]byte, (1+more)*p.size)
	if _, err := p.f.ReadAt(data, int64(id*p.size)); err != nil {
		return nil, damaged("page %d: %w", id, err)
	}
	return data, nil
}

// element is one of a page: of a leaf a key with its value, of a branch the page below.
type element struct {
	flags      uint32
	key, value []byte
	below      uint64
}

func at(page []byte, i int) (e element, err error) {
	start := pageHeader + i*elementSize
	if start+elementSize > len(page) {
		return e, damaged("a page of %d bytes has no element %d", len(page), i)
	}
	raw, u32 := page[start:], binary.LittleEndian.Uint32
	if binary.LittleEndian.Uint16(page[8:]) == branchPage {
		return element{below: binary.LittleEndian.Uint64(raw[8:])}, nil
	}
	key, value := uint64(u32(raw[4:])), uint64(u32(raw[4:]))+uint64(u32(raw[8:]))
	end := value + uint64(u32(raw[12:]))
	if end > uint64(len(raw)) {
		return e, damaged("element %d of a page leaves it", i)
	}
	return element{flags: u32(raw), key: raw[key:value], value: raw[value:end]}, nil
}

// backward calls yield with the elements of a bucket, from the last key to the first.
func (p *pages) backward(b bucket, yield func(element) error) error {
	var last []byte
	seen := map[uint64]struct{}{}
	var walk func(page []byte) error
	walk = func(page []byte) error {
		kind := binary.LittleEndian.Uint16(page[8:])
		if kind != branchPage && kind != leafPage {
			return damaged("a page has kind %d", kind)
		}
		for i := int(binary.LittleEndian.Uint16(page[10:])) - 1; i >= 0; i-- {
			e, err := at(page, i)
			if err != nil {
				return err
			}
			if kind == leafPage {
				if last != nil && bytes.Compare(e.key, last) >= 0 {
					return damaged("its keys are not in order")
				}
				last = e.key
				if err := yield(e); err != nil {
					return err
				}
				continue
			}
			if _, ok := seen[e.below]; ok {
				return damaged("page %d is there twice", e.below)
			}
			seen[e.below] = struct{}{}
			below, err := p.page(e.below)
			if err == nil {
				err = walk(below)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	if b.inline != nil {
		return walk(b.inline)
	}
	page, err := p.page(b.root)
	if err != nil {
		return err
	}
	return walk(page)
}

// bucket returns a bucket by its name, or nil.
func (p *pages) bucket(name string) (found *bucket, err error) {
	err = p.backward(bucket{root: p.root}, func(e element) error {
		if string(e.key) != name || e.flags&bucketLeaf == 0 {
			return nil
		}
		if len(e.value) < 16 {
			return damaged("the bucket %s has no root", name)
		}
		found = &bucket{root: binary.LittleEndian.Uint64(e.value)}
		if found.root == 0 {
			if found.inline = e.value[16:]; len(found.inline) < pageHeader {
				return damaged("the bucket %s has no page", name)
			}
		}
		return nil
	})
	return found, err
}
