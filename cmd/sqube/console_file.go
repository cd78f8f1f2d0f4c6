package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/sqube/sqube/cmd/sqube/internal/datastore"
	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/server"
	"github.com/sqube/sqube/server/console"
	"github.com/sqube/sqube/server/controllers"
	"github.com/sqube/sqube/server/encryption"
	"github.com/sqube/sqube/server/kubecopy"
	"github.com/sqube/sqube/server/wholefile"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/origin"
)

// fileConsole is the console of a backup or an archive, without any server but one in this process, on a copy.
type fileConsole struct {
	source     string
	encryption encryption.Options
	dir        string              // of the copy
	copy       datastore.Datastore // in it
}

// run shows a source until the context of cmd ends.
func (f *fileConsole) run(cmd *cobra.Command, source string, listener net.Listener, opened func(*console.Proxy)) (err error) {
	f.source = source
	defer closing(&err, f.close)
	if err := f.open(cmd); err != nil {
		if strings.Contains(err.Error(), source) {
			return err
		}
		return fmt.Errorf("%s: %w", source, err)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "This is a copy of %s, which can't be changed. It is removed at the end: interrupt with Ctrl+C.\n", source)
	return f.serve(cmd.Context(), listener, opened)
}

// never is when what is in the copy grows old.
const never = time.Duration(math.MaxInt64 / 4)

// open copies the source. The caller closes.
func (f *fileConsole) open(cmd *cobra.Command) (err error) {
	if f.dir, err = os.MkdirTemp("", "sqube-console-"); err != nil { // private
		return err
	}
	f.copy = datastore.Datastore{Path: filepath.Join(f.dir, "sqube.db"), NoSync: true}
	switch {
	case strings.HasPrefix(f.source, kubecopy.Prefix):
		_, err = copyOf(cmd, f.source, f.copy.Path)
	case origin.IsFollowed(f.source):
		quiet := &cobra.Command{}
		quiet.SetContext(cmd.Context())
		quiet.SetOut(io.Discard)
		r := restorer{target: f.copy, history: never}
		err = r.fromFollowed(quiet, f.source, time.Time{})
	default:
		err = f.copyFile(cmd.Context())
	}
	if err != nil {
		return err
	}
	return f.readable(cmd.Context())
}

func (f *fileConsole) copyFile(ctx context.Context) error {
	switch dump, err := isPgDump(f.source); {
	case err != nil:
		return err
	case dump:
		return origin.ErrPgDump
	}
	from := datastore.Datastore{Path: f.source}
	if err := from.Complete(); err != nil {
		return err
	}
	status, err := from.Status(ctx)
	if err == nil && !status.Older() {
		err = status.Usable()
	}
	if err != nil {
		return err
	}
	return wholefile.Create(f.copy.Path, func(file *os.File) error { return from.Backup(ctx, file) })
}

// readable fails if a value can't be decrypted.
func (f *fileConsole) readable(ctx context.Context) (err error) {
	if _, err := f.copy.Migrate(ctx); err != nil {
		return err
	}
	reader, err := f.copy.OpenReader(ctx)
	if err != nil {
		return err
	}
	defer closing(&err, reader.Close)
	return decryptable(ctx, reader, f.encryption)
}

// decryptable fails if the newest value of a resource can't be decrypted.
func decryptable(ctx context.Context, reader dialect.Reader, o encryption.Options) error {
	keys, err := encryption.Load(o, "")
	if err != nil {
		return err
	}
	defer keys.Close()
	const newest = "SELECT api_group, resource, key, value FROM log WHERE id IN (SELECT max(id) FROM log WHERE replaced_by IS NULL GROUP BY api_group, resource)"
	return reader.Query(ctx, newest, nil, func(row dialect.Row) error {
		var r sqlstore.Resource
		var key string
		var value []byte
		err := row.Scan(&r.Group, &r.Name, &key, &value)
		if err == nil {
			_, err = decrypt(ctx, keys, r, key, value)
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", r.Name, key, err)
		}
		return nil
	})
}

func (f *fileConsole) close() error { return os.RemoveAll(f.dir) }

// serve serves the console on listener until ctx ends. See serveConsole for opened.
func (f *fileConsole) serve(ctx context.Context, listener net.Listener, opened func(*console.Proxy)) error {
	klog.SetLogger(logr.Discard()) // both log for servers
	slog.SetDefault(slog.New(slog.DiscardHandler))
	own, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer own.Close()
	options, err := f.options(own)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var failed error
	process := server.Process{Options: options, Open: f.openStore, Built: func(ctx context.Context, s *server.Server) {
		if err := f.proxy(ctx, s, listener, opened); err != nil {
			failed = err
			stop()
		}
	}}
	err = process.Run(ctx, own)
	return errors.Join(failed, err)
}

// options are those of a server that only answers.
func (f *fileConsole) options(own net.Listener) (*server.Options, error) {
	o := server.NewOptions()
	o.DataDir, o.InMemory, o.KeysVary = f.dir, true, true // keys of its own
	o.ReadOnly = fmt.Sprintf("this is a copy of %s, which can't be changed", f.source)
	o.Controllers = []string{"-" + controllers.All}
	o.Features.EnablePriorityAndFairness = false // it writes its state
	o.Encryption = f.encryption
	o.DropConnections = true
	o.Serving.BindAddress, o.Serving.BindPort = net.IPv4(127, 0, 0, 1), own.Addr().(*net.TCPAddr).Port
	return o, o.Complete()
}

// openStore opens the copy in a way that nothing in it grows old.
func (f *fileConsole) openStore(ctx context.Context, o sqlstore.Options) (*sqlstore.Store, error) {
	engine, err := f.copy.Open(ctx)
	if err != nil {
		return nil, err
	}
	o.Retention, o.History, o.CompactInterval, o.ExpiryInterval = never, never, never, never
	return sqlstore.Open(ctx, engine, o)
}

// proxy passes the console's requests to the server, as an administrator, until ctx ends.
func (f *fileConsole) proxy(ctx context.Context, s *server.Server, listener net.Listener, opened func(*console.Proxy)) error {
	if err := s.Wait(ctx); err != nil {
		return err
	}
	text, err := s.Kubeconfig("administrator", "system:masters")
	if err != nil {
		return err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		return err
	}
	return serveConsole(ctx, config, listener, opened)
}
