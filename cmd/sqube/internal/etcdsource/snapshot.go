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

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/encoding/protowire"
)

// snapshot is a bbolt database with a bucket "key", whose keys are revisions: 8 bytes of the transaction, '_', 8 bytes of the number
// within it, and 't' for a deletion. (etcd: server/storage/mvcc/revision.go.)
type snapshot struct {
	db       *bolt.DB
	revision int64
}

// openTimeout is how long to wait for a file that another process has locked.
const openTimeout = time.Second

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
	if s.db, err = bolt.Open(path, 0o400, &bolt.Options{ReadOnly: true, Timeout: openTimeout}); err != nil {
		return nil, err
	}
	err = s.db.View(func(tx *bolt.Tx) error {
		bucket, err := keyBucket(tx)
		if err != nil {
			return err
		}
		if last, _ := bucket.Cursor().Last(); last != nil {
			s.revision, err = mainRevision(last)
		}
		return err
	})
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

func keyBucket(tx *bolt.Tx) (*bolt.Bucket, error) {
	bucket := tx.Bucket([]byte("key"))
	if bucket == nil {
		return nil, errors.New("it has no keys: it is not a snapshot of etcd 3")
	}
	return bucket, nil
}

func (s *snapshot) Revision() int64 { return s.revision }

// Walk implements Source. It goes from the newest revision to the oldest, so the first change of a key that it sees is the last one.
// It keeps 16 bytes of the SHA-256 sum of each key that it has seen.
func (s *snapshot) Walk(ctx context.Context, prefix string, yield func(*Entry) error) error {
	return s.db.View(func(tx *bolt.Tx) error {
		bucket, err := keyBucket(tx)
		if err != nil {
			return err
		}
		leases := tx.Bucket([]byte("lease"))
		seen := map[[16]byte]struct{}{}
		cursor := bucket.Cursor()
		for at, data := cursor.Last(); at != nil; at, data = cursor.Prev() {
			if err := ctx.Err(); err != nil {
				return err
			}
			revision, err := mainRevision(at)
			if err != nil {
				return err
			}
			var kv mvccpb.KeyValue
			if err := kv.Unmarshal(data); err != nil {
				return fmt.Errorf("revision %d: %w", revision, err)
			}
			key := string(kv.Key)
			if !strings.HasPrefix(key, prefix) {
				continue
			}
			sum := sha256.Sum256(kv.Key)
			half := [16]byte(sum[:])
			if _, ok := seen[half]; ok {
				continue
			}
			seen[half] = struct{}{}
			if at[len(at)-1] == 't' && len(at) == revisionBytes+1 {
				continue
			}
			ttl, err := timeToLive(leases, kv.Lease)
			if err != nil {
				return fmt.Errorf("lease %x: %w", kv.Lease, err)
			}
			if err := yield(&Entry{Key: key, Value: kv.Value, Revision: revision, TTL: ttl}); err != nil {
				return err
			}
		}
		return nil
	})
}

// revisionBytes is the length of a revision in the bucket of keys, without the mark of a deletion.
const revisionBytes = 17

func mainRevision(key []byte) (int64, error) {
	if len(key) < revisionBytes {
		return 0, fmt.Errorf("a revision has %d bytes: it is not a snapshot of etcd 3", len(key))
	}
	return int64(binary.BigEndian.Uint64(key)), nil
}

// timeToLive reads a lease: a protobuf message with the seconds it was granted for in field 2, and those that remained when
// it was last recorded in field 3. (etcd: server/lease/leasepb.) etcd counts from its own start.
func timeToLive(leases *bolt.Bucket, id int64) (time.Duration, error) {
	if id == 0 || leases == nil {
		return 0, nil
	}
	data := leases.Get(binary.BigEndian.AppendUint64(nil, uint64(id)))
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

func (s *snapshot) Close() error { return s.db.Close() }
