package imports

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/proto"
	"k8s.io/client-go/util/cert"

	"github.com/sqube/sqube/test/harness"
)

// TestEtcdEndpoint imports over the network what TestEtcdSnapshot imports from a file.
func TestEtcdEndpoint(t *testing.T) {
	t.Parallel()
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	harness.Must(t, err)
	dir := t.TempDir()
	files := []string{"--cacert", filepath.Join(dir, "tls.crt"), "--cert", filepath.Join(dir, "tls.crt"), "--key", filepath.Join(dir, "tls.key")}
	for path, data := range map[string][]byte{files[1]: certificate, files[5]: key} {
		harness.Must(t, os.WriteFile(path, data, 0o600))
	}
	pair, err := tls.X509KeyPair(certificate, key)
	harness.Must(t, err)
	snapshot := recording(t, "etcd")
	url := "https://" + serveEtcd(t, snapshot, &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert})
	engine := harness.Engine{Name: "sqlite", Datastore: harness.SQLite(t)}
	arguments := append([]string{"import", "--datastore", engine.Datastore, "--from", "etcd", url}, append(files, encryption...)...)
	report := succeeds(t, arguments...)
	if !strings.Contains(report, "An API server that still runs on the source may write to it") {
		t.Errorf("it does not warn of a server that still writes:\n%s", report)
	}
	want := succeeds(t, append([]string{"import", "--datastore", harness.SQLite(t), "--from", "etcd", snapshot, "--dry-run"}, encryption...)...)
	if sorted(table(report)) != sorted(table(want)) {
		t.Errorf("from the endpoint\n%s\nand from the snapshot\n%s", report, want)
	}
	succeeds(t, append([]string{"check", "--datastore", engine.Datastore}, encryption...)...)
	expires(t, engine)
	refuses(t, "etcd was compacted meanwhile", append(slices.Replace(slices.Clone(arguments), 2, 3, harness.SQLite(t)), "--etcd-prefix", compactedPrefix)...)
}

// sorted sorts the names within lines: each source has its own order of keys.
func sorted(report string) string {
	words := strings.FieldsFunc(report, func(r rune) bool { return r == ' ' || r == ',' })
	slices.Sort(words)
	return strings.Join(words, " ")
}

// compactedPrefix is the prefix of keys that the fake etcd no longer has at the requested revision.
const compactedPrefix = "/compacted"

// etcd serves the importer's requests, like etcd, from the keys of a snapshot.
type etcd struct {
	etcdserverpb.UnimplementedKVServer
	etcdserverpb.UnimplementedLeaseServer
	keys     []*mvccpb.KeyValue // sorted
	revision int64
}

// serveEtcd returns the address at which it serves until the test ends.
func serveEtcd(t *testing.T, snapshot string, config *tls.Config) string {
	t.Helper()
	e := readSnapshot(t, snapshot)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	harness.Must(t, err)
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(config)))
	etcdserverpb.RegisterKVServer(server, e)
	etcdserverpb.RegisterLeaseServer(server, e)
	go server.Serve(listener) // until Stop
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

func readSnapshot(t *testing.T, path string) *etcd {
	t.Helper()
	db, err := bolt.Open(path, 0o400, &bolt.Options{ReadOnly: true})
	harness.Must(t, err)
	defer db.Close()
	e, byKey := &etcd{}, map[string]*mvccpb.KeyValue{}
	err = db.View(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("key")).ForEach(func(at, data []byte) error {
			kv := &mvccpb.KeyValue{}
			if err := proto.Unmarshal(data, kv); err != nil {
				return err
			}
			e.revision = max(e.revision, kv.ModRevision)
			byKey[string(kv.Key)] = kv
			if bytes.HasSuffix(at, []byte("t")) && len(at) == 18 {
				delete(byKey, string(kv.Key))
			}
			return nil
		})
	})
	harness.Must(t, err)
	for _, kv := range byKey {
		e.keys = append(e.keys, kv)
	}
	slices.SortFunc(e.keys, func(a, b *mvccpb.KeyValue) int { return bytes.Compare(a.Key, b.Key) })
	return e
}

// Range returns the keys from Key up to RangeEnd.
func (e *etcd) Range(_ context.Context, r *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	if bytes.HasPrefix(r.Key, []byte(compactedPrefix)) {
		return nil, rpctypes.ErrGRPCCompacted
	}
	response := &etcdserverpb.RangeResponse{Header: &etcdserverpb.ResponseHeader{Revision: e.revision}}
	if r.CountOnly {
		return response, nil
	}
	for _, kv := range e.keys {
		if bytes.Compare(kv.Key, r.Key) < 0 || bytes.Compare(kv.Key, r.RangeEnd) >= 0 {
			continue
		}
		if response.Count++; response.Count > r.Limit {
			response.More = true
			break
		}
		response.Kvs = append(response.Kvs, kv)
	}
	return response, nil
}

// LeaseTimeToLive returns an hour for every lease.
func (e *etcd) LeaseTimeToLive(_ context.Context, r *etcdserverpb.LeaseTimeToLiveRequest) (*etcdserverpb.LeaseTimeToLiveResponse, error) {
	return &etcdserverpb.LeaseTimeToLiveResponse{Header: &etcdserverpb.ResponseHeader{Revision: e.revision}, ID: r.ID, TTL: 3600}, nil
}
