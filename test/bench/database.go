package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/sqube/sqube/test/harness"
)

// database is an empty Postgres database for one server.
type database struct {
	DSN    string
	Server int // the id of Postgres' first process, 0 if it is not on this machine
}

// newDatabase creates a database on the server that the flag names, or else on one that it starts. What it creates is removed
// when s is closed.
func newDatabase(ctx context.Context, o options, s *server) (database, error) {
	admin := o.postgres
	if admin == "" {
		own, err := harness.StartPostgres()
		if err != nil {
			return database{}, err
		}
		s.onClose(own.Close)
		admin = own.DSN()
	}
	suffix := make([]byte, 6)
	rand.Read(suffix) // never fails: it crashes the process instead
	name := "sqube_bench_" + hex.EncodeToString(suffix)
	u, err := url.Parse(admin)
	if err != nil {
		return database{}, errors.New("--postgres is not a URL of the form postgres://user:password@host:port/database")
	}
	u.Path = "/" + name
	db := database{DSN: u.String()}
	err = withConnection(ctx, admin, func(conn *pgx.Conn) error {
		var backend int
		if err := conn.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&backend); err != nil {
			return err
		}
		if db.Server = parentOf(backend, "postgres"); db.Server == 0 {
			progress("Postgres runs on another machine: the figures leave out its CPU time and memory")
		}
		_, err := conn.Exec(ctx, "CREATE DATABASE "+name)
		return err
	})
	if err != nil {
		return database{}, fmt.Errorf("creating a Postgres database: %w", err)
	}
	s.onClose(func() error {
		// Not with ctx, which has ended if the run was interrupted.
		ctx := context.Background()
		return withConnection(ctx, admin, func(conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)")
			return err
		})
	})
	s.DataSize = func() (size int64, err error) {
		err = withConnection(ctx, db.DSN, func(conn *pgx.Conn) error {
			return conn.QueryRow(ctx, "SELECT pg_database_size(current_database())").Scan(&size)
		})
		return size, err
	}
	return db, nil
}

func withConnection(ctx context.Context, dsn string, use func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	return errors.Join(use(conn), conn.Close(context.Background()))
}

// parentOf returns the parent of a local process that runs the program, and 0 for a process of another machine, whose id is
// meaningless here.
func parentOf(pid int, program string) int {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil || strings.TrimSpace(string(name)) != program {
		return 0
	}
	stat, err := readStat(pid)
	if err != nil {
		return 0
	}
	return stat.parent
}

// filesSize returns the total size of the files below a path, or of those whose names begin with it.
func filesSize(pattern string) (int64, error) {
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return 0, err
	}
	var total int64
	for _, path := range paths {
		err := filepath.WalkDir(path, func(_ string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			info, err := entry.Info()
			if err == nil {
				total += info.Size()
			}
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	return total, nil
}
