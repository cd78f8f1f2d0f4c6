package etcdsource

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// snapshot is a bbolt database with a bucket "key", whose keys are revisions: 8 bytes of the transaction, '_', 8 bytes of the number
// within it, and 't' for a deletion. (etcd: server/storage/mvcc/revision.go.)
type snapshot struct {
	pages    *pages
	keys     bucket
	revision int64
}

// openTimeout is how long to wait for a file that another process has locked.
const openTimeout = time.Second

// errStop ends a walk early.
var errStop = errors.New("stop")

// OpenSnapshot opens a file of `etcdctl snapshot save` or `k3s etcd-snapshot save`, and verifies the SHA-256 sum at its end. Without
// verify it can also open the file of a stopped etcd, member/snap/db, which has no sum.
func OpenSnapshot(path string, verify bool) (_ Source, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
	}()
	if verify {
		if err := verifySum(path); err != nil {
			return nil, err
		}
	}
	s := &snapshot{}
	if s.pages, err = openPages(path); err != nil {
		return nil, err
	}
	keys, err := s.pages.bucket("key")
	switch {
	case err != nil:
	case keys == nil:
		err = errors.New("it has no keys: it is not a snapshot of etcd 3")
	default:
		s.keys = *keys
		err = s.pages.backward(s.keys, func(last element) (err error) {
			if s.revision, err = mainRevision(last.key); err == nil {
				err = errStop
			}
			return err
		})
		if errors.Is(err, errStop) {
			err = nil
		}
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// verifySum compares the sum at the end of the file with the sum of the rest. A bbolt file consists of pages, so without the sum its
// size is a multiple of 512 bytes.
func verifySum(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	size := info.Size() - sha256.Size
	if size <= 0 || size%512 != 0 {
		return errors.New("it has no checksum at its end: it was truncated, or is not a snapshot of etcd (use --skip-hash-check for member/snap/db of a stopped etcd)")
	}
	hash := sha256.New()
	if _, err := io.CopyN(hash, f, size); err != nil {
		return err
	}
	sum, err := io.ReadAll(f)
	if err == nil && !bytes.Equal(sum, hash.Sum(nil)) {
		err = errors.New("the checksum at its end is wrong: it is damaged")
	}
	return err
}

func (s *snapshot) Revision() int64 { return s.revision }

// Walk implements Source. It goes from the newest revision to the oldest, so the first change of a key that it sees is the last one.
// It keeps 16 bytes of the SHA-256 sum of each key that it has seen.
func (s *snapshot) Walk(ctx context.Context, prefix string, yield func(*Entry) error) error {
	leases, err := s.leases()
	if err != nil {
		return err
	}
	seen := map[[16]byte]struct{}{}
	return s.pages.backward(s.keys, func(e element) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		revision, err := mainRevision(e.key)
		if err != nil {
			return err
		}
		var kv mvccpb.KeyValue
		if err := proto.Unmarshal(e.value, &kv); err != nil {
			return damaged("revision %d: %w", revision, err)
		}
		key := string(kv.Key)
		if !strings.HasPrefix(key, prefix) {
			return nil
		}
		sum := sha256.Sum256(kv.Key)
		half := [16]byte(sum[:])
		if _, ok := seen[half]; ok {
			return nil
		}
		seen[half] = struct{}{}
		if e.key[len(e.key)-1] == 't' && len(e.key) == revisionBytes+1 {
			return nil
		}
		return yield(&Entry{Key: key, Value: kv.Value, Revision: revision, TTL: leases[kv.Lease]})
	})
}

// leases returns how long each lease has left.
func (s *snapshot) leases() (map[int64]time.Duration, error) {
	found, err := s.pages.bucket("lease")
	if err != nil || found == nil {
		return nil, err
	}
	left := map[int64]time.Duration{}
	return left, s.pages.backward(*found, func(e element) (err error) {
		if len(e.key) != 8 {
			return damaged("a lease has an id of %d bytes", len(e.key))
		}
		id := int64(binary.BigEndian.Uint64(e.key))
		if left[id], err = timeToLive(e.value); err != nil {
			return damaged("lease %x: %w", id, err)
		}
		return nil
	})
}

// revisionBytes is the length of a revision in the bucket of keys, without the mark of a deletion.
const revisionBytes = 17

// maxRevision is more than any etcd has written.
const maxRevision = 1 << 53

func mainRevision(key []byte) (int64, error) {
	if len(key) < revisionBytes {
		return 0, damaged("a revision has %d bytes", len(key))
	}
	revision := int64(binary.BigEndian.Uint64(key))
	if revision <= 0 || revision > maxRevision || key[8] != '_' {
		return 0, damaged("a revision is %x", key)
	}
	return revision, nil
}

// timeToLive reads a lease: a protobuf message with the seconds it was granted for in field 2, and those that remained when
// it was last recorded in field 3. (etcd: server/lease/leasepb.) etcd counts from its own start.
func timeToLive(data []byte) (time.Duration, error) {
	seconds := map[protowire.Number]uint64{}
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 || kind != protowire.VarintType {
			return 0, errors.New("it can't be read")
		}
		value, m := protowire.ConsumeVarint(data[n:])
		if m < 0 {
			return 0, protowire.ParseError(m)
		}
		seconds[number] = value
		data = data[n+m:]
	}
	left := seconds[3]
	if left == 0 {
		left = seconds[2]
	}
	return time.Duration(left) * time.Second, nil
}

func (s *snapshot) Close() error { return s.pages.f.Close() }
