package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/server/fleet"
	"github.com/sqube/sqube/server/fleet/v1alpha1"
	"github.com/sqube/sqube/server/wholefile"
)

// sealSize is the size of a key that encrypts the keys of an exported cluster.
const sealSize = 32

// addSealFlag adds the flag for a file with such a key.
func addSealFlag(fs *pflag.FlagSet, file *string, usage string) {
	fs.StringVar(file, "key-file", "", usage+" 32 bytes in base64, as (umask 077; head -c 32 /dev/urandom | base64 > FILE) makes it.")
}

// sealIn returns the key in a file, "" if there is no file.
func sealIn(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) != sealSize {
		return "", fmt.Errorf("--key-file %s must hold %d bytes in base64", file, sealSize)
	}
	return base64.StdEncoding.EncodeToString(key), nil
}

func hostedExportCommand() *cobra.Command {
	var h host
	var keyFile string
	cmd := &cobra.Command{
		Use:   "export NAME FILE",
		Short: "Write a cluster to a file, with its history",
		Long: `Write a cluster to a file, with its history, awake or asleep, from either engine. sqube
cluster import makes a cluster of it, with the same resourceVersions. The file is a tar
archive; sqube.db in it is a database that the other commands take, too, such as sqube
console sqube.db. It holds Secrets.

With --key-file, it also has the cluster's keys, encrypted. Otherwise an imported cluster
makes its own, and kubeconfigs and tokens of this one are worth nothing there.`,
		Example: "  sqube cluster export dev dev.tar",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("want a NAME and a FILE (see %s --help)", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			seal, err := sealIn(keyFile)
			if err != nil {
				return err
			}
			if err := h.load(); err != nil {
				return err
			}
			return wholefileOf(cmd, args[1], func(to io.Writer) error {
				from, err := h.export(cmd.Context(), args[0], seal)
				if err != nil {
					return err
				}
				defer from.Close()
				return copyArchive(to, from)
			})
		},
	}
	h.addFlags(cmd)
	addSealFlag(cmd.Flags(), &keyFile, "File with a key that encrypts the cluster's keys:")
	return cmd
}

// wholefileOf fills a new file, and prints its name and size.
func wholefileOf(cmd *cobra.Command, path string, fill func(io.Writer) error) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	err = wholefile.Create(path, func(f *os.File) error {
		defer watchSize(cmd, f.Name())()
		return fill(f)
	})
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err == nil {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", terminal.Printable(path), size(info.Size()))
	}
	return err
}

// export begins to read an export.
func (h *host) export(ctx context.Context, name, seal string) (io.ReadCloser, error) {
	request := h.in(h.fleet.Post(), name).SubResource("export")
	if seal != "" {
		request = request.SetHeader(fleet.SealHeader, seal)
	}
	stream, err := request.Stream(ctx)
	return stream, h.explain(err)
}

// copyArchive copies an export that must be whole.
func copyArchive(to io.Writer, from io.Reader) error {
	both := io.TeeReader(from, to)
	archive := tar.NewReader(both)
	for {
		_, err := archive.Next()
		if errors.Is(err, io.EOF) {
			_, err = io.Copy(io.Discard, both) // what follows the end of the archive
			return err
		}
		if err != nil {
			return fmt.Errorf("the host has not sent all of the export: %w", err)
		}
	}
}

// importOptions are the flags of sqube cluster import.
type importOptions struct {
	host
	keyFile string
}

func hostedImportCommand() *cobra.Command {
	var o importOptions
	cmd := &cobra.Command{
		Use:   "import FILE [NAME]",
		Short: "Make a cluster of a file that sqube cluster export wrote",
		Long: `Make a cluster of a file that sqube cluster export wrote, on the same host or on another
one, of either engine. Objects keep their resourceVersions and their history. Without a
NAME, the cluster has the one that it had.`,
		Example: "  sqube cluster import dev.tar dev --context other-host",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 && len(args) != 2 {
				return fmt.Errorf("want a FILE, and perhaps a NAME (see %s --help)", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			name := ""
			if len(args) == 2 {
				name = args[1]
			}
			return o.run(cmd, args[0], name)
		},
	}
	o.addFlags(cmd, objectForms...)
	addSealFlag(cmd.Flags(), &o.keyFile, "File with the key that encrypted the cluster's keys in the export:")
	return cmd
}

func (o *importOptions) run(cmd *cobra.Command, path, name string) error {
	seal, err := sealIn(o.keyFile)
	if err != nil {
		return err
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	like, err := exportedCluster(file)
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return fmt.Errorf("%s is no export of a cluster: %w", terminal.Printable(path), err)
	}
	if err := o.load(); err != nil {
		return err
	}
	made, err := o.takeOver(cmd, like, name, seal, file)
	if err != nil {
		return err
	}
	return o.print(cmd.OutOrStdout(), made, "imported: "+made.Status.URL)
}

// exportedCluster reads the Cluster with which an export begins.
func exportedCluster(from io.Reader) (*v1alpha1.Cluster, error) {
	archive := tar.NewReader(from)
	head, err := archive.Next()
	if err != nil {
		return nil, err
	}
	if head.Name != fleet.ExportedCluster {
		return nil, fmt.Errorf("it begins with %s", terminal.Printable(head.Name))
	}
	o := &v1alpha1.Cluster{}
	return o, json.NewDecoder(archive).Decode(o)
}

// takeOver makes a cluster like another one, and gives it an exported database. If that fails, it is deleted.
func (h *host) takeOver(cmd *cobra.Command, like *v1alpha1.Cluster, name, seal string, export io.Reader) (made *v1alpha1.Cluster, err error) {
	ctx := cmd.Context()
	made = &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: cmp.Or(name, like.Name), Namespace: h.namespace, Labels: like.Labels, Annotations: like.Annotations}, Spec: like.Spec}
	made.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Cluster"}
	made.Spec.From = nil
	if err := h.in(h.fleet.Post(), "").Body(made).Do(ctx).Into(made); err != nil {
		return nil, h.explain(err)
	}
	defer func() {
		if err != nil {
			failed := h.in(h.fleet.Delete(), made.Name).Do(context.WithoutCancel(ctx)).Error()
			err = errors.Join(err, h.explain(failed))
		}
	}()
	if _, err := h.await(cmd, made.Name); err != nil {
		return nil, err
	}
	var sent atomic.Int64
	defer progress(cmd, func() string { return fmt.Sprintf("cluster %s: %s", made.Name, size(sent.Load())) })()
	request := h.in(h.fleet.Post(), made.Name).SubResource("import").SetHeader("Content-Type", "application/x-tar").Body(counted{export, &sent})
	if seal != "" {
		request = request.SetHeader(fleet.SealHeader, seal)
	}
	return made, h.explain(request.Do(ctx).Into(made))
}

// counted counts what is read.
type counted struct {
	io.Reader
	n *atomic.Int64
}

// Read implements io.Reader.
func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// moveOptions are the flags of sqube cluster move.
type moveOptions struct {
	host
	to, toKubeconfig, toNamespace, toName string
}

func hostedMoveCommand() *cobra.Command {
	var o moveOptions
	cmd := &cobra.Command{
		Use:   "move NAME --to CONTEXT",
		Short: "Move a cluster to another host, with its history and its keys",
		Long: `Move a cluster to another host, of either engine, with its history and its keys: objects
keep their resourceVersions. It is copied, and then deleted here, unless somebody has
changed something meanwhile. Its URL is another one afterwards, so clients need new
kubeconfigs.`,
		Example: "  sqube cluster move dev --context laptop --to team-host --to-namespace team",
		Args:    oneArgument("one NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.to == "" && o.toKubeconfig == "" {
				return errors.New("--to or --to-kubeconfig must be given")
			}
			if err := o.load(); err != nil {
				return err
			}
			return o.run(cmd, args[0])
		},
	}
	o.addFlags(cmd, objectForms...)
	fs := cmd.Flags()
	fs.StringVar(&o.to, "to", "", "Context of the other host.")
	fs.StringVar(&o.toKubeconfig, "to-kubeconfig", "", "Kubeconfig file of the other host. If unset, that of this one.")
	fs.StringVar(&o.toNamespace, "to-namespace", "", "Namespace in the other host. If unset, that of its context.")
	fs.StringVar(&o.toName, "to-name", "", "Name in the other host. If unset, the same.")
	return cmd
}

func (o *moveOptions) run(cmd *cobra.Command, name string) error {
	ctx := cmd.Context()
	other := host{cluster: cluster{kubeconfig: cmp.Or(o.toKubeconfig, o.kubeconfig)}, namespace: o.toNamespace, output: o.output}
	other.overrides.CurrentContext = o.to
	if err := other.load(); err != nil {
		return err
	}
	key := make([]byte, sealSize)
	_, _ = rand.Read(key) // never fails
	seal := base64.StdEncoding.EncodeToString(key)
	before, err := o.state(ctx, name, "")
	if err != nil {
		return err
	}
	from, err := o.export(ctx, name, seal)
	if err != nil {
		return err
	}
	defer from.Close()
	began, head := io.Pipe()
	go func() { head.CloseWithError(copyArchive(head, from)) }()
	buffered := &replayed{Reader: began}
	like, err := exportedCluster(buffered)
	if err != nil {
		return fmt.Errorf("the host has sent no export of a cluster: %w", err)
	}
	made, err := other.takeOver(cmd, like, o.toName, seal, buffered.again())
	if err != nil {
		return err
	}
	if err := o.removeMoved(ctx, name, before.ResourceVersion); err != nil {
		return fmt.Errorf("%s has a copy of the cluster, but this host keeps it, too: %w", other.config.Host, err)
	}
	return other.print(cmd.OutOrStdout(), made, "moved: "+made.Status.URL)
}

// removeMoved deletes a cluster that has been copied to another host, unless it has changed since a revision from before that.
func (o *moveOptions) removeMoved(ctx context.Context, name, since string) error {
	here, err := o.state(ctx, name, since)
	if err != nil {
		return err
	}
	if len(here.Items) > 0 {
		return fmt.Errorf("%s was changed there meanwhile, by %s: delete one of the two", here.Items[0].Name, here.Items[0].User)
	}
	return o.explain(o.in(o.fleet.Delete(), name).Do(ctx).Error())
}

// state returns the first page of what differs in a cluster since a revision.
func (h *host) state(ctx context.Context, name, since string) (*v1alpha1.ClusterState, error) {
	request := h.in(h.fleet.Get(), name).SubResource("state").Param("limit", "1")
	if since != "" {
		request = request.Param("since", since)
	}
	text, err := answer(request.Do(ctx))
	if err != nil {
		return nil, h.explain(err)
	}
	state := &v1alpha1.ClusterState{}
	return state, decodeJSON(text, state)
}

// replayed keeps what is read of a stream, so that it can be read again.
type replayed struct {
	io.Reader
	kept []byte
}

// Read implements io.Reader.
func (r *replayed) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.kept = append(r.kept, p[:n]...)
	return n, err
}

// again is the stream from its beginning.
func (r *replayed) again() io.Reader { return io.MultiReader(bytes.NewReader(r.kept), r.Reader) }
