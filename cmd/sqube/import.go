package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/sqube/sqube/cmd/sqube/internal/datastore"
	"github.com/sqube/sqube/cmd/sqube/internal/etcdsource"
	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/server/encryption"
	"github.com/sqube/sqube/server/etcdimport"
	"github.com/sqube/sqube/sqlstore"
)

type importer struct {
	target     datastore.Datastore
	from       string
	prefix     string
	tls        rest.TLSClientConfig // of an etcd
	unverified bool
	dryRun     bool
	encryption encryption.Options
}

func importCommand() *cobra.Command {
	var i importer
	cmd := &cobra.Command{
		Use:   "import --from kine-sqlite|kine-postgres|etcd SOURCE",
		Short: "Create a database from the state of k3s or kube-apiserver",
		Long: `Create a database from the state of k3s or kube-apiserver, and report what was
imported and what was not. SOURCE is

  for kine-sqlite    the file of k3s, /var/lib/rancher/k3s/server/db/state.db
  for kine-postgres  the DSN, postgres://USER:PASSWORD@HOST:PORT/DATABASE
  for etcd           a snapshot that etcdctl snapshot save or k3s etcd-snapshot save
                     wrote, or the URL of an etcd, such as https://127.0.0.1:2379

SOURCE is only read. Stop its kube-apiserver first: later writes are not imported. The
database in --datastore must be empty and not served. Objects keep their uids and
resourceVersions; new versions start far above any that the source can have used, so
clients that watch the cluster list it again.

The state does not contain the keys. To keep kubeconfigs and tokens valid, copy them
before the first start:

  from kubeadm, in /etc/kubernetes/pki    to DATA-DIR/pki
    ca.crt, ca.key                          ca.crt, ca.key
    front-proxy-ca.crt, front-proxy-ca.key  front-proxy-ca.crt, front-proxy-ca.key
    sa.key                                  sa.key
  from k3s, in server/tls                 to DATA-DIR/pki
    server-ca.crt, server-ca.key            ca.crt, ca.key
    request-header-ca.crt, .key             front-proxy-ca.crt, front-proxy-ca.key
    service.key                             sa.key
    client-ca.crt                           anywhere, for --client-ca-file`,
		Example: `  sqube import --from kine-sqlite /var/lib/rancher/k3s/server/db/state.db --dry-run
  sqube import --from etcd snapshot.db --encryption-provider-config encryption.yaml
  sqube import --from etcd https://127.0.0.1:2379 --cacert ca.crt --cert client.crt --key client.key`,
		Args: oneArgument("one SOURCE: a file, a DSN or a URL"),
		RunE: func(cmd *cobra.Command, args []string) error { return i.run(cmd, args[0]) },
	}
	addDatastoreFlags(cmd, &i.target)
	fs := cmd.Flags()
	fs.StringVar(&i.from, "from", "", "Kind of SOURCE: kine-sqlite, kine-postgres or etcd.")
	fs.StringVar(&i.prefix, "etcd-prefix", "/registry", "Prefix of all keys, as in kube-apiserver's flag of this name.")
	fs.StringVar(&i.tls.CAFile, "cacert", "", "File with the CA of etcd's certificate.")
	fs.StringVar(&i.tls.CertFile, "cert", "", "File with a client certificate for etcd.")
	fs.StringVar(&i.tls.KeyFile, "key", "", "File with the key of --cert.")
	fs.BoolVar(&i.unverified, "skip-hash-check", false, "Accept a snapshot without a checksum, such as member/snap/db of a stopped etcd.")
	fs.BoolVar(&i.dryRun, "dry-run", false, "Read everything and report what would be imported, but write nothing.")
	addEncryptionFlag(cmd, &i.encryption)
	return cmd
}

func (i *importer) run(cmd *cobra.Command, source string) (err error) {
	ctx := cmd.Context()
	klog.SetLogger(logr.Discard()) // the libraries log for servers
	keys, err := encryption.Load(i.encryption, "")
	if err != nil {
		return err
	}
	defer keys.Close()
	prefix := strings.TrimSuffix(i.prefix, "/") + "/"
	converter, err := etcdimport.New(prefix, keys)
	if err != nil {
		return err
	}
	from, err := i.open(ctx, source)
	if err != nil {
		return terminal.OneLine(err)
	}
	defer closing(&err, from.Close)

	var read atomic.Int64
	done := progress(cmd, func() string { return fmt.Sprintf("%d objects", read.Load()) })
	report := newImportReport()
	ids := etcdimport.NewRowIDs(from.Revision())
	counter, err := jumpedCounter(time.Now(), dialect.End{Revision: from.Revision()})
	if err != nil {
		return fmt.Errorf("importing %s: %w", source, err)
	}
	err = i.load(ctx, counter, func(add func(*dialect.LogRow) error) error {
		err := from.Walk(ctx, prefix+etcdimport.Definitions, func(e *etcdsource.Entry) error { return converter.Define(ctx, e.Key, e.Value) })
		if err != nil {
			return err
		}
		err = from.Walk(ctx, prefix, func(e *etcdsource.Entry) error {
			read.Add(1)
			result := converter.Import(ctx, e.Key, e.Value)
			report.add(&result)
			if result.Write == nil {
				return nil
			}
			if e.TTL != 0 {
				result.Write.ExpiresAt = time.Now().Add(e.TTL).UnixMilli()
			}
			return add(result.Write.LogRow(ids.Of(e.Revision), sqlstore.Author{User: sqlstore.ImportAuthor}, time.Now()))
		})
		if err == nil && read.Load() == 0 {
			err = fmt.Errorf("no key of the source begins with %s: give the --etcd-prefix of its kube-apiserver", prefix)
		}
		return err
	})
	done()
	if errors.Is(err, dialect.ErrNotEmpty) {
		return fmt.Errorf("%s is not empty: give another --datastore", i.target)
	}
	if err != nil {
		return err
	}
	if err := report.print(cmd.OutOrStdout()); err != nil {
		return err
	}
	i.printSummary(cmd.OutOrStdout(), &report, from.Revision())
	if datastore.Named(source) {
		fmt.Fprintln(cmd.OutOrStdout(), "An API server that still runs on the source may write to it: stop it before the import, or what it writes later is missing")
	}
	return nil
}

func (i *importer) open(ctx context.Context, source string) (etcdsource.Source, error) {
	switch i.from {
	case "kine-sqlite":
		if datastore.Named(source) {
			return nil, errors.New("--from kine-sqlite takes a file")
		}
		return etcdsource.OpenKineSQLite(ctx, source)
	case "kine-postgres":
		return etcdsource.OpenKinePostgres(ctx, source)
	case "etcd":
		if address, err := url.Parse(source); err == nil && address.Host != "" && strings.HasPrefix(address.Scheme, "http") {
			return etcdsource.OpenEndpoint(ctx, address, i.tls)
		}
		if datastore.Named(source) {
			return nil, errors.New("--from etcd takes a file, or a URL such as https://127.0.0.1:2379")
		}
		return etcdsource.OpenSnapshot(source, !i.unverified)
	}
	return nil, fmt.Errorf("--from must be kine-sqlite, kine-postgres or etcd, not %q", i.from)
}

// load fills the database, or in a dry run checks whether it could.
func (i *importer) load(ctx context.Context, counter dialect.Position, rows func(add func(*dialect.LogRow) error) error) (err error) {
	if i.dryRun {
		if err := i.checkEmpty(ctx); err != nil {
			return err
		}
		return rows(func(*dialect.LogRow) error { return nil })
	}
	_, err = i.target.Fill(ctx, false, func(engine datastore.Engine, _ dialect.End) error { return engine.Load(ctx, counter, rows, nil) })
	return err
}

// checkEmpty returns dialect.ErrNotEmpty if the database holds anything. It creates nothing.
func (i *importer) checkEmpty(ctx context.Context) (err error) {
	if !i.target.Shared() {
		if _, err := os.Stat(i.target.Path); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	status, err := i.target.Status(ctx)
	if err != nil || status.Current == 0 {
		return err
	}
	reader, err := i.target.OpenReader(ctx)
	if err != nil {
		return err
	}
	defer closing(&err, reader.Close)
	return dialect.CheckEmpty(ctx, reader)
}

// printSummary prints what was done, and what is left to do.
func (i *importer) printSummary(out io.Writer, report *importReport, revision int64) {
	taken, _ := report.total()
	if i.dryRun {
		fmt.Fprintf(out, "\n%s would hold %d objects, as of revision %d\n", i.target, taken, revision)
		return
	}
	fmt.Fprintf(out, "\n%s holds %d objects, as of revision %d\n", i.target, taken, revision)
	fmt.Fprintln(out, "Copy the keys of the old cluster to pki under --data-dir before the first start: see sqube import --help")
	if len(report.serviceRanges) > 0 {
		fmt.Fprintf(out, "Serve it with --service-cluster-ip-range %s, as before\n", terminal.Printable(strings.Join(report.serviceRanges, ",")))
	}
}
