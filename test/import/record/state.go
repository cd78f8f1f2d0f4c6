package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	_ "modernc.org/sqlite" // the driver "sqlite"
)

// state is the store of a kube-apiserver.
type state interface {
	get(ctx context.Context, key string) ([]byte, error)
	// put writes all values at one revision, if the store supports that.
	put(ctx context.Context, values map[string][]byte) error
	// save returns everything, as saved by a user.
	save(context.Context) ([]byte, error)
	close() error
}

func openState(ctx context.Context, name, where string) (state, error) {
	switch name {
	case "etcd":
		connection, err := grpc.NewClient(strings.TrimPrefix(where, "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
		return etcd{connection}, err
	case "kine-sqlite":
		db, err := sql.Open("sqlite", "file:"+where+"?_pragma=busy_timeout(30000)")
		return kine{db, saveSQLite}, err
	default:
		db, err := sql.Open("pgx", where)
		return kine{db, func(ctx context.Context, _ *sql.DB) ([]byte, error) { return savePostgres(ctx, where) }}, err
	}
}

type etcd struct{ connection *grpc.ClientConn }

func (e etcd) get(ctx context.Context, key string) ([]byte, error) {
	response, err := etcdserverpb.NewKVClient(e.connection).Range(ctx, &etcdserverpb.RangeRequest{Key: []byte(key)})
	if err != nil {
		return nil, err
	}
	if len(response.Kvs) == 0 {
		return nil, fmt.Errorf("there is no %s", key)
	}
	return response.Kvs[0].Value, nil
}

func (e etcd) put(ctx context.Context, values map[string][]byte) error {
	request := &etcdserverpb.TxnRequest{}
	for key, value := range values {
		request.Success = append(request.Success, &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestPut{
			RequestPut: &etcdserverpb.PutRequest{Key: []byte(key), Value: value},
		}})
	}
	_, err := etcdserverpb.NewKVClient(e.connection).Txn(ctx, request)
	return err
}

// save works like `etcdctl snapshot save`: what etcd sends ends with the checksum.
func (e etcd) save(ctx context.Context) ([]byte, error) {
	stream, err := etcdserverpb.NewMaintenanceClient(e.connection).Snapshot(ctx, &etcdserverpb.SnapshotRequest{})
	if err != nil {
		return nil, err
	}
	var all []byte
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, part.Blob...)
	}
}

func (e etcd) close() error { return e.connection.Close() }

type kine struct {
	db   *sql.DB
	keep func(context.Context, *sql.DB) ([]byte, error)
}

func (k kine) get(ctx context.Context, key string) (value []byte, err error) {
	err = k.db.QueryRowContext(ctx, "SELECT value FROM kine WHERE name = $1 ORDER BY id DESC LIMIT 1", key).Scan(&value)
	return value, err
}

// put only creates: a row that replaces another would have to refer to it.
func (k kine) put(ctx context.Context, values map[string][]byte) error {
	for key, value := range values {
		_, err := k.db.ExecContext(ctx, "INSERT INTO kine (name, created, deleted, create_revision, prev_revision, lease, value) VALUES ($1, 1, 0, 0, 0, 0, $2)", key, value)
		if err != nil {
			return err
		}
	}
	return nil
}

func (k kine) save(ctx context.Context) ([]byte, error) { return k.keep(ctx, k.db) }

func (k kine) close() error { return k.db.Close() }

func saveSQLite(ctx context.Context, db *sql.DB) ([]byte, error) {
	dir, err := os.MkdirTemp("", "record-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "state.db")
	if _, err := db.ExecContext(ctx, "VACUUM INTO $1", file); err != nil {
		return nil, err
	}
	return os.ReadFile(file)
}

// savePostgres returns the rows of the table in the text format of COPY.
func savePostgres(ctx context.Context, dsn string) ([]byte, error) {
	connection, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, err
	}
	defer connection.Close(context.Background())
	var rows bytes.Buffer
	_, err = connection.PgConn().CopyTo(ctx, &rows, "COPY kine TO STDOUT")
	return rows.Bytes(), err
}
