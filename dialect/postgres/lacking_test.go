package postgres_test

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore/history"
	"github.com/sqube/sqube/test/harness"
)

// lacking lists what engines that speak Postgres' protocol may lack, each next to an unknown name of the same length.
var lacking = [][2]string{
	{"LISTEN sqube", "LISTEN 'qube"},
	{"pg_notify", "pg_n0tify"},
	{"pg_control_system", "pg_c0ntrol_system"},
	{"plan_cache_mode", "plan_cache_m0de"},
	{"pg_stat_activity", "pg_stat_activ1ty"},
	{"pg_advisory_xact_lock", "pg_adv1sory_xact_lock"},
	{"pg_settings", "pg_sett1ngs"},
	{"pg_database_size", "pg_databas3_size"},
	{"autovacuum_vacuum_scale_factor", "aut0vacuum_vacuum_scale_factor"},
}

// withoutThem returns the DSN of the same database on a server that lacks all of these.
func withoutThem(t *testing.T, dsn string) string {
	t.Helper()
	u := harness.ParseDSN(t, dsn)
	target := u.Host
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	harness.Must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer client.Close()
				server, err := net.Dial("tcp", target)
				if err != nil {
					return
				}
				defer server.Close()
				go func() {
					_, _ = io.Copy(client, server)
					_ = client.Close()
				}()
				buffer := make([]byte, 1<<20)
				for {
					n, err := client.Read(buffer)
					sent := buffer[:n]
					for _, name := range lacking {
						sent = bytes.ReplaceAll(sent, []byte(name[0]), []byte(name[1]))
					}
					if _, failed := server.Write(sent); err != nil || failed != nil {
						return
					}
				}
			}()
		}
	}()
	u.Host = listener.Addr().String()
	return u.String()
}

// TestEngineThatLacks serves a log from a server that has little more than tables: the schema is created, other processes'
// commits are noticed, rows are removed.
func TestEngineThatLacks(t *testing.T) {
	dsn := harness.Postgres(t)
	e := open(t, withoutThem(t, dsn))
	other := open(t, withoutThem(t, dsn))
	create := dialect.Write{Operation: dialect.Create, Resource: "pods", Key: "a", Labels: "{}", Fields: "{}", Value: []byte("{}")}
	committed, err := other.Commit(t.Context(), []dialect.Write{create})
	if err != nil || !committed.Landed[0] {
		t.Fatalf("a commit: %v, %v", committed, err)
	}
	for heard := int64(0); heard < committed.Last; {
		select {
		case heard = <-e.Notifications():
		case <-time.After(time.Minute):
			t.Fatal("the other process' commit was not noticed")
		}
	}
	update := create
	update.Operation, update.Replaces = dialect.Update, committed.Last
	if committed, err = e.Commit(t.Context(), []dialect.Write{update}); err != nil || !committed.Landed[0] {
		t.Fatalf("update: %v, %v", committed, err)
	}
	if n, err := e.Compact(t.Context(), committed.Last, 10, history.Pack(nil)); err != nil || n != 1 {
		t.Errorf("compaction moved %d rows, %v", n, err)
	}
	if n, err := e.Forget(t.Context(), committed.Last, 10); err != nil || n != 1 {
		t.Errorf("%d blocks of history were removed, %v", n, err)
	}
	if more, err := e.Shrink(t.Context()); err != nil || more {
		t.Errorf("Shrink: %v, %v", more, err)
	}
	if space, err := e.Space(t.Context()); err != nil || space.HeldBack != nil {
		t.Errorf("Space: %v, %v", space, err)
	}
}
