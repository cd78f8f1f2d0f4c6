package etcdsource

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/sqube/sqube/test/harness"
)

// written returns a file as etcd writes it, with 600 keys, of which one is deleted and one has a lease of a minute.
func written(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	db, err := bolt.Open(path, 0o600, nil)
	harness.Must(t, err)
	err = db.Update(func(tx *bolt.Tx) error {
		keys, err := tx.CreateBucket([]byte("key"))
		if err != nil {
			return err
		}
		leases, err := tx.CreateBucket([]byte("lease"))
		if err != nil {
			return err
		}
		for i := 1; i <= 600; i++ {
			kv := mvccpb.KeyValue{Key: fmt.Appendf(nil, "/registry/k%d", i), Value: make([]byte, 10)}
			at := append(binary.BigEndian.AppendUint64(nil, uint64(i)), "_12345678"...)
			switch i {
			case 100:
				kv.Value = make([]byte, 20_000) // of several pages
			case 200:
				kv.Lease = 7
			case 600:
				kv, at = mvccpb.KeyValue{Key: []byte("/registry/k1")}, append(at, 't')
			}
			data, err := proto.Marshal(&kv)
			if err == nil {
				err = keys.Put(at, data)
			}
			if err != nil {
				return err
			}
		}
		return leases.Put(binary.BigEndian.AppendUint64(nil, 7), []byte{8, 7, 16, 60})
	})
	if err == nil {
		err = db.Close()
	}
	harness.Must(t, err)
	data, err := os.ReadFile(path)
	harness.Must(t, err)
	return data
}

// walk reads a whole file.
func walk(t *testing.T, data []byte) (entries map[string]*Entry, revision int64, err error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "snapshot")
	harness.Must(t, os.WriteFile(path, data, 0o600))
	source, err := OpenSnapshot(path, false)
	if err != nil {
		return nil, 0, err
	}
	entries = map[string]*Entry{}
	err = source.Walk(context.Background(), "/registry/", func(e *Entry) error {
		entries[e.Key] = e
		return nil
	})
	if closed := source.Close(); closed != nil {
		t.Error(closed)
	}
	return entries, source.Revision(), err
}

func TestSnapshot(t *testing.T) {
	entries, revision, err := walk(t, written(t))
	if err != nil || revision != 600 || len(entries) != 598 {
		t.Fatalf("%d entries at revision %d, %v", len(entries), revision, err)
	}
	if e := entries["/registry/k200"]; e.TTL != time.Minute || e.Revision != 200 {
		t.Errorf("the one with a lease is %+v", e)
	}
	if e := entries["/registry/k100"]; len(e.Value) != 20_000 || entries["/registry/k1"] != nil {
		t.Errorf("the large one has %d bytes, the deleted one is %+v", len(e.Value), entries["/registry/k1"])
	}
}

// TestDamagedSnapshot reads the file cut off at many places, and with each kind of byte changed.
func TestDamagedSnapshot(t *testing.T) {
	whole := written(t)
	failed := 0
	try := func(what string, data []byte) {
		entries, _, err := walk(t, data)
		switch {
		case err == nil && len(entries) == 0:
			t.Errorf("%s: no error, and nothing read", what)
		case err != nil && !strings.Contains(err.Error(), "the snapshot is damaged: ") && !strings.Contains(err.Error(), "it has no keys"):
			t.Errorf("%s: %v", what, err)
		case err != nil:
			failed++
		}
	}
	for size := 0; size < len(whole)*3/4; size += 2531 {
		try(fmt.Sprintf("%d bytes of it", size), whole[:size])
	}
	if failed == 0 {
		t.Error("nothing that was cut off is an error")
	}
	failed = 0
	const page = 4096
	for start := 0; start < len(whole); start += page {
		for _, offset := range []int{0, 8, 10, 12, 16, 17, 20, 24, 25, 28, 30, 40, 56, 1000} { // of the header, of elements, of values
			for _, bits := range []byte{1, 0xff} {
				data := append([]byte(nil), whole...)
				data[start+offset] ^= bits
				try(fmt.Sprintf("byte %d changed by %x", start+offset, bits), data)
			}
		}
	}
	if failed == 0 {
		t.Error("nothing that was changed is an error")
	}
}
