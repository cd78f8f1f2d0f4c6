package datastore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"

	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/server/fleet"
	"github.com/sqube/sqube/server/fleet/v1alpha1"
	"github.com/sqube/sqube/sqlstore"
)

// clusters is the resource of the clusters that a server hosts.
var clusters = sqlstore.Resource{Group: v1alpha1.GroupVersion.Group, Name: "clusters"}

// Hosted returns the database of a cluster that the server hosts whose own database this is. The cluster is NAMESPACE/NAME, or the id of its
// database, by which those of deleted clusters are found.
func (d Datastore) Hosted(ctx context.Context, cluster string) (Datastore, error) {
	id := cluster
	if strings.Contains(cluster, "/") {
		all, err := d.HostedClusters(ctx)
		if err != nil {
			return d, err
		}
		if id = all[cluster]; id == "" {
			return d, fmt.Errorf("--cluster %s: %s hosts no such cluster, or has not made its database yet", cluster, d)
		}
	}
	if d.Shared() {
		u, err := url.Parse(d.DSN)
		if err != nil {
			return d, errors.New("--cluster needs a --datastore postgres://…, not keywords and values")
		}
		query := u.Query()
		query.Set("search_path", "sqube_"+id)
		u.RawQuery = query.Encode()
		d.DSN, d.Cluster = u.String(), cluster
		return d, nil
	}
	hosted := Datastore{Path: NewFiles(ClustersFolder(d.dataDir)).path(id), Cluster: cluster}
	if _, err := os.Lstat(hosted.Path); errors.Is(err, fs.ErrNotExist) {
		return d, fmt.Errorf("--cluster %s: %w: give the --data-dir of the server that hosts it", cluster, err)
	}
	return hosted, nil
}

// HostedClusters returns the ids of the databases of all clusters that the server hosts whose own database this is, by NAMESPACE/NAME.
func (d Datastore) HostedClusters(ctx context.Context) (ids map[string]string, err error) {
	reader, err := d.OpenReader(ctx)
	if err != nil {
		return nil, err
	}
	ids = map[string]string{}
	const live = "WHERE replaced_by IS NULL AND operation <> 'delete' AND api_group = ? AND resource = ?"
	err = dialect.Rows(ctx, reader, live, []any{clusters.Group, clusters.Name}, func(row *dialect.LogRow) error {
		var o v1alpha1.Cluster
		if err := json.Unmarshal(row.Value, &o); err != nil {
			return fmt.Errorf("the cluster %s: %w", row.Key, err)
		}
		if o.Status.Database != "" {
			ids[row.Key] = o.Status.Database
		}
		return nil
	})
	return ids, terminal.OneLine(errors.Join(err, reader.Close()))
}

// errHosted is the error of changing the database of a hosted cluster that servers of Postgres share: only its owner may.
var errHosted = errors.New("on Postgres, only its server changes a hosted cluster: make another Cluster from a backup (spec.from.backup), and change that through the API")

// asleep explains the error of changing the database of a cluster that is awake.
func (d Datastore) asleep(err error) error {
	var elsewhere *fleet.Elsewhere
	if d.Cluster == "" || !errors.Is(err, dialect.ErrLocked) && !errors.As(err, &elsewhere) {
		return err
	}
	return fmt.Errorf("the cluster %s is awake: put it to sleep first (sqube cluster sleep), and let nobody ask it meanwhile: %w", d.Cluster, dialect.ErrLocked)
}
