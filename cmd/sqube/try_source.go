package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/cmd/sqube/internal/datastore"
	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/server"
	"github.com/sqube/sqube/server/encryption"
	"github.com/sqube/sqube/server/kubecopy"
	"github.com/sqube/sqube/server/trial"
	"github.com/sqube/sqube/sqlstore/inspect"
)

// trySource is what is copied for a trial, and who the user is there.
type trySource struct {
	clusterCopy
	copied
	encryption encryption.Options
	reuse      time.Duration
	outbound   []string

	as           string // --as
	asGroups     []string
	ownNamespace string   // of the context, or "default"
	contextName  string   // of the kubeconfig; "" for a source that is no cluster
	helm         bool     // the command needs the releases of Helm
	namespaces   []string // in which the change is made, as far as is known
}

func (s *trySource) addFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	s.cluster.addFlags(fs)
	fs.Lookup("as").Usage = "User who makes the change. If unset, you: who the kubeconfig says, or an administrator for a backup."
	fs.Lookup("as-group").Usage = "Group of the user of --as; can be repeated."
	_ = fs.MarkHidden("as-uid")
	fs.Lookup("request-timeout").Usage = "How long to wait for an answer of the cluster, such as 30s; 0 for as long as it takes."
	fs.StringVar(&s.from, "from", "", "Copy a backup instead of a cluster: what sqube restore takes (a file of sqube backup, a folder or s3://BUCKET/PREFIX of backup --follow or serve --archive, or a database, even one that is served), or kube:CONTEXT.")
	fs.StringVar(&s.when, "at", "", "With --from: the revision, time such as 2026-11-21T10:00:00Z, or how long ago, such as 10h, whose state is copied. If unset, the newest.")
	fs.BoolVar(&s.options.Secrets, "secrets", false, "Copy the values of Secrets from the cluster.")
	fs.StringSliceVar(&s.options.Namespaces, "only-namespaces", nil, "Copy only objects in these namespaces of the cluster. If unset, all.")
	fs.StringSliceVar(&s.options.Without, "without", nil, "Resources of the cluster that are not copied, such as events or leases.coordination.k8s.io.")
	fs.StringSliceVar(&s.outbound, "outbound", nil, "Addresses, HOST or HOST:PORT, of webhooks that the copy may call, as a dry run: those without side effects. '*' for all. Those of Services are called at NAME.NAMESPACE.svc. If unset, none: the result says which would have been called.")
	fs.DurationVar(&s.reuse, "reuse", 0, "Keep the copy of the cluster in a private folder, and use one that is not older than this, such as 10m.")
	addEncryptionFlag(cmd, &s.encryption)
}

// prepare makes the copy in a folder, and sets what to try on and as whom.
func (s *trySource) prepare(cmd *cobra.Command, folder string, to *trial.Options) (err error) {
	if name, ok := strings.CutPrefix(s.from, kubecopy.Prefix); ok {
		if s.overrides.CurrentContext != "" && name != "" && s.overrides.CurrentContext != name {
			return errors.New("give one of --context and --from")
		}
		s.overrides.CurrentContext, s.from = cmp.Or(name, s.overrides.CurrentContext), ""
	} else if s.from != "" && s.overrides.CurrentContext != "" {
		return errors.New("give one of --context and --from")
	}
	s.as, s.asGroups = s.overrides.AuthInfo.Impersonate, s.overrides.AuthInfo.ImpersonateGroups
	s.overrides.AuthInfo.Impersonate, s.overrides.AuthInfo.ImpersonateGroups = "", nil // the copy is made with the user's own rights
	if len(s.asGroups) > 0 && s.as == "" {
		return errors.New("--as-group needs --as")
	}
	if s.helm {
		if s.reuse != 0 {
			return errors.New("Helm keeps its releases in Secrets, whose values --reuse does not keep: leave it out")
		}
		s.options.SecretTypes = []corev1.SecretType{"helm.sh/release.v1"}
	}
	o := server.NewOptions()
	o.InMemory, o.Encryption = true, s.encryption
	to.From = filepath.Join(folder, "cluster.db")
	if s.from == "" {
		err = s.fromCluster(cmd, s.as == "", to)
	} else {
		err = s.fromBackup(cmd, o, to)
	}
	if err != nil {
		return err
	}
	if s.as != "" {
		to.User, to.Groups = s.as, groupsOf(s.as, s.asGroups)
	}
	if s.config != nil {
		if err := s.askRights(cmd.Context(), s.as, s.asGroups, to); err != nil {
			return terminal.OneLine(fmt.Errorf("asking %s what %s may do: %w", s.config.Host, to.User, err))
		}
	}
	to.Outbound = s.outbound
	own := copied{from: to.From}
	ranges := own.serviceRanges(cmd.Context())
	to.Configure = func(o *server.Options) {
		o.CopyOf, o.Encryption = to.Source, s.encryption
		if len(ranges) > 0 {
			o.ServiceClusterIPRange = strings.Join(ranges, ",")
		}
	}
	return nil
}

// askRights asks the cluster what the user may do.
func (s *trySource) askRights(ctx context.Context, as string, groups []string, to *trial.Options) (err error) {
	config := rest.CopyConfig(s.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: as, Groups: groups}
	namespaces := slices.DeleteFunc(append(s.namespaces, s.ownNamespace), func(name string) bool { return name == "" })
	slices.Sort(namespaces)
	grants, err := grantsOf(ctx, config, slices.Compact(namespaces))
	to.Grants = append(to.Grants, grants...)
	if apierrors.IsForbidden(err) { // who may not impersonate relies on what the copy says
		return nil
	}
	return err
}

// fromBackup copies a source that is no cluster.
func (s *trySource) fromBackup(cmd *cobra.Command, o *server.Options, to *trial.Options) error {
	if s.reuse != 0 || len(s.options.Namespaces) > 0 || len(s.options.Without) > 0 || s.options.Secrets {
		return errors.New("--reuse, --only-namespaces, --without and --secrets are for clusters, not for --from")
	}
	if err := s.copied.complete(o); err != nil {
		return err
	}
	_, err := datastore.Datastore{Path: to.From, NoSync: true}.Fill(cmd.Context(), false, func(engine datastore.Engine, _ dialect.End) error {
		return s.copied.fill(cmd.Context(), engine, o)
	})
	s.ownNamespace, to.Moment = metav1.NamespaceDefault, s.copied.moment
	to.Source, to.User, to.Groups = fmt.Sprintf("%s, as of %s", o.CopyOf, inspect.Stamp(s.copied.moment)), "kubernetes-admin", []string{user.SystemPrivilegedGroup}
	return err
}

// fromCluster copies a cluster, or uses a copy again. It asks the cluster who the user is, or not.
func (s *trySource) fromCluster(cmd *cobra.Command, ask bool, to *trial.Options) error {
	switch {
	case s.when != "":
		return errors.New("--at is for backups: a cluster is copied as it is now")
	case s.reuse != 0 && s.options.Secrets:
		return errors.New("--reuse does not keep the values of Secrets: leave out one of --reuse and --secrets")
	}
	if err := s.load(); err != nil {
		return err
	}
	raw, err := s.loader.RawConfig()
	if err != nil {
		return terminal.OneLine(err)
	}
	s.contextName = cmp.Or(s.overrides.CurrentContext, raw.CurrentContext)
	if s.ownNamespace, _, err = s.loader.Namespace(); err != nil {
		return terminal.OneLine(err)
	}
	if ask {
		if to.User, to.Groups, err = whoAmI(cmd.Context(), s.config); err != nil {
			return terminal.OneLine(fmt.Errorf("asking %s who you are: %w", s.config.Host, err))
		}
	}
	to.Source, to.Moment = cmp.Or(s.contextName, s.config.Host), time.Now()
	if s.reuse == 0 {
		return s.copyCluster(cmd, to.From, to)
	}
	file, err := s.kept(to)
	if err != nil {
		return err
	}
	to.From = file
	info, err := os.Stat(file)
	if err == nil && time.Since(info.ModTime()) <= s.reuse {
		to.Moment = info.ModTime()
		to.Source = fmt.Sprintf("%s, as of %s ago", to.Source, time.Since(info.ModTime()).Round(time.Second))
		return nil
	}
	unfinished := fmt.Sprintf("%s.%d", file, os.Getpid())
	defer os.Remove(unfinished)
	if err := s.copyCluster(cmd, unfinished, to); err != nil {
		return err
	}
	return os.Rename(unfinished, file)
}

// copyCluster copies the cluster, and notes what it could not read.
func (s *trySource) copyCluster(cmd *cobra.Command, file string, to *trial.Options) error {
	report, err := s.clusterCopy.copy(cmd, file)
	if err != nil {
		return err
	}
	for key, objects := range report.skipped {
		if strings.HasSuffix(key.resource, ".sqube.io") || strings.HasPrefix(key.resource, "leases.") { // of the server itself
			continue
		}
		what := key.resource
		if objects.count > 0 {
			what += " " + objects.String()
		}
		to.Missing = append(to.Missing, strings.Join(strings.Fields(what+": "+key.reason), " "))
	}
	slices.Sort(to.Missing)
	if slices.ContainsFunc(to.Missing, func(line string) bool { return strings.HasPrefix(line, "namespaces:") }) { // they can't be read, but are there
		to.Namespaces = append(slices.Clone(s.options.Namespaces), s.ownNamespace)
	}
	return nil
}

// kept returns where the copy of this cluster, as this user sees it, is kept, and removes old copies.
func (s *trySource) kept(to *trial.Options) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("--reuse: %w", err)
	}
	folder := filepath.Join(cache, "sqube", "copies")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", fmt.Errorf("--reuse: %w", err)
	}
	if info, err := os.Lstat(folder); err != nil || !info.IsDir() || info.Mode().Perm() != 0o700 {
		return "", errors.Join(err, fmt.Errorf("--reuse: %s must be a folder that only its owner may use: chmod 700 it", folder))
	}
	files, err := os.ReadDir(folder)
	if err != nil {
		return "", err
	}
	const tooOld = 24 * time.Hour
	for _, f := range files {
		if info, err := f.Info(); err == nil && time.Since(info.ModTime()) > tooOld {
			_ = os.Remove(filepath.Join(folder, f.Name()))
		}
	}
	same := fmt.Sprintf("%q", []any{s.config.Host, s.config.CAData, s.config.CAFile, s.contextName, to.User, to.Groups, s.options.Namespaces, s.options.Without})
	return filepath.Join(folder, fmt.Sprintf("%x.db", sha256.Sum256([]byte(same)))), nil
}
