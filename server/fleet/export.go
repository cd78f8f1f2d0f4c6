package fleet

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sqube/sqube/server/fleet/v1alpha1"
	"github.com/sqube/sqube/server/sharedkeys"
	"github.com/sqube/sqube/sqlstore"
)

// An export is a tar archive of these files: the Cluster, its keys if the request has SealHeader, and its database.
const (
	ExportedCluster  = "cluster.json"
	exportedKeys     = "keys.json"
	exportedDatabase = "sqube.db"
)

// SealHeader has 32 bytes in base64, with which the keys of a cluster are encrypted in an export.
const SealHeader = "Sqube-Seal"

// whole returns what encrypts the keys of a cluster that is exported or imported as a whole, nil for nothing, and the Cluster.
func (f *Fleet) whole(r *http.Request, name types.NamespacedName) (*sharedkeys.Sealer, *v1alpha1.Cluster, error) {
	seal, err := sealOf(r)
	if err != nil {
		return nil, nil, err
	}
	o, err := f.get(r.Context(), name)
	if err == nil && o.Status.Database == "" {
		err = apierrors.NewServiceUnavailable("the cluster is being created")
	}
	return seal, o, err
}

// export sends a cluster, awake or asleep, as it is now.
func (f *Fleet) export(w http.ResponseWriter, r *http.Request, name types.NamespacedName) (any, error) {
	seal, o, err := f.whole(r, name)
	if err != nil {
		return nil, err
	}
	about, err := json.Marshal(described(o))
	if err != nil {
		return nil, err
	}
	var keys []byte
	if seal != nil {
		if keys, err = f.sealedKeys(r.Context(), name, seal); err != nil {
			return nil, err
		}
	}
	folder, err := os.MkdirTemp("", "sqube-export-")
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	file := filepath.Join(folder, exportedDatabase)
	if err := f.config.Databases.Export(r.Context(), o.Status.Database, file); err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("exporting the database: %w", err))
	}
	w.Header().Set("Content-Type", "application/x-tar")
	if err := writeExport(w, about, keys, file); err != nil {
		logFailure("exporting a cluster failed", name, err)
		panic(http.ErrAbortHandler) // the client has to know that something is missing
	}
	return nil, nil
}

// described returns a Cluster without what is of this host alone.
func described(o *v1alpha1.Cluster) *v1alpha1.Cluster {
	d := &v1alpha1.Cluster{TypeMeta: o.TypeMeta, ObjectMeta: metav1.ObjectMeta{Name: o.Name, Namespace: o.Namespace}, Spec: o.Spec}
	d.Labels, d.Annotations = maps.Clone(o.Labels), maps.Clone(o.Annotations)
	for _, all := range []map[string]string{d.Labels, d.Annotations} {
		maps.DeleteFunc(all, func(key, _ string) bool { return strings.HasPrefix(key, v1alpha1.GroupVersion.Group+"/") })
	}
	return d
}

func sealOf(r *http.Request) (*sharedkeys.Sealer, error) {
	text := r.Header.Get(SealHeader)
	if text == "" {
		return nil, nil
	}
	key, err := base64.StdEncoding.DecodeString(text)
	var seal *sharedkeys.Sealer
	if err == nil && len(key) == secretSize {
		seal, err = sharedkeys.NewSealer(key)
	}
	if err != nil || seal == nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s must be %d bytes in base64", SealHeader, secretSize))
	}
	return seal, nil
}

// sealedKeys returns the keys of a cluster, encrypted with a seal.
func (f *Fleet) sealedKeys(ctx context.Context, name types.NamespacedName, seal *sharedkeys.Sealer) ([]byte, error) {
	s, leave, err := f.visit(ctx, name) // which makes the keys of a cluster that has never been awake
	if err != nil {
		return nil, err
	}
	defer leave()
	row, _, err := s.Store().Get(ctx, sharedkeys.Resource, sharedkeys.Name)
	if err != nil || row == nil {
		return nil, apierrors.NewInternalError(cmp.Or(err, errors.New("the cluster has no keys")))
	}
	return f.sealer.Reseal(row.Value, seal)
}

func writeExport(to io.Writer, about, keys []byte, file string) error {
	archive := tar.NewWriter(to)
	add := func(name string, size int64, content io.Reader) error {
		if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: size}); err != nil {
			return err
		}
		_, err := io.Copy(archive, content)
		return err
	}
	addText := func(name string, text []byte) error { return add(name, int64(len(text)), bytes.NewReader(text)) }
	if err := addText(ExportedCluster, about); err != nil {
		return err
	}
	if keys != nil {
		if err := addText(exportedKeys, keys); err != nil {
			return err
		}
	}
	database, err := os.Open(file)
	if err != nil {
		return err
	}
	defer database.Close()
	info, err := database.Stat()
	if err == nil {
		err = add(exportedDatabase, info.Size(), database)
	}
	return cmp.Or(err, archive.Close())
}

// takeOver replaces the database of a cluster by an exported one, and answers with the Cluster.
func (f *Fleet) takeOver(_ http.ResponseWriter, r *http.Request, name types.NamespacedName) (any, error) {
	seal, o, err := f.whole(r, name)
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "sqube-import-")
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	most := int64(0)
	if limit := o.Spec.Limits.Storage; limit != nil {
		most = limit.Value()
	}
	file := filepath.Join(folder, exportedDatabase)
	keys, err := readExport(r.Body, file, most)
	if err != nil {
		return nil, err
	}
	c := f.find(name)
	if c == nil {
		return nil, notFound(name)
	}
	if err := f.replace(r.Context(), c, file, keys, seal); err != nil {
		return nil, err
	}
	if _, leave, err := f.visit(r.Context(), name); err != nil {
		return nil, err
	} else {
		leave() // it has said who its users are
	}
	return f.get(r.Context(), name)
}

// replace puts an exported database in the place of that of a cluster, which does not wake up meanwhile. If that fails, the cluster is empty.
func (f *Fleet) replace(ctx context.Context, c *cluster, file string, keys []byte, seal *sharedkeys.Sealer) error {
	if keys != nil && seal == nil {
		return apierrors.NewBadRequest("the export has the cluster's keys, encrypted: send what they are encrypted with, too")
	}
	var own []byte
	if keys != nil {
		var err error
		if own, err = seal.Reseal(keys, f.sealer); err != nil {
			return apierrors.NewBadRequest(fmt.Sprintf("the keys in the export can't be read: %v", err))
		}
	}
	if !c.hold(errReplaced) {
		return apierrors.NewConflict(v1alpha1.GroupVersion.WithResource(resource).GroupResource(), c.name.Name, errors.New("it is being deleted or imported"))
	}
	defer c.release()
	c.stop(ctx)
	ctx = context.WithoutCancel(ctx) // from here on, there is no way back
	if err := f.config.Databases.Remove(ctx, c.id); err != nil {
		return apierrors.NewInternalError(err)
	}
	if err := f.config.Databases.Import(ctx, c.id, file); err != nil {
		return errors.Join(apierrors.NewBadRequest(fmt.Sprintf("the export can't be imported, and the cluster is empty now: %v", err)), f.config.Databases.Create(ctx, c.id))
	}
	return f.adoptKeys(ctx, c.id, own)
}

// hold keeps the cluster from waking up until release is called. It returns false if something else does.
func (c *cluster) hold(why error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone != nil {
		return false
	}
	c.gone = why
	return true
}

func (c *cluster) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if errors.Is(c.gone, errReplaced) {
		c.gone = nil
	}
}

// readExport reads an archive, writes the database to a file, of most bytes unless that is 0, and returns the keys, nil if there are none.
func readExport(from io.Reader, file string, most int64) (keys []byte, err error) {
	archive, found := tar.NewReader(from), false
	for {
		head, err := archive.Next()
		switch {
		case errors.Is(err, io.EOF) && found:
			return keys, nil
		case err != nil:
			return nil, apierrors.NewBadRequest(fmt.Sprintf("the body must be an export of a cluster as a whole: %v", err))
		case head.Name == exportedKeys:
			if keys, err = io.ReadAll(io.LimitReader(archive, maxAsked)); err != nil {
				return nil, apierrors.NewBadRequest(err.Error())
			}
		case head.Name == exportedDatabase && !found:
			found = true
			if most > 0 && head.Size > most {
				return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the database has %d bytes, and spec.limits.storage allows %d", head.Size, most))
			}
			if err := spool(archive, file); err != nil {
				return nil, err
			}
		}
	}
}

func spool(from io.Reader, file string) error {
	to, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	if _, err := io.Copy(to, from); err != nil {
		return errors.Join(apierrors.NewBadRequest(fmt.Sprintf("receiving the export: %v", err)), to.Close())
	}
	return to.Close()
}

// adoptKeys stores the keys of an imported cluster. Without keys, it makes its own when it wakes up.
func (f *Fleet) adoptKeys(ctx context.Context, id string, own []byte) error {
	store, err := f.config.Databases.Open(ctx, id, sqlstore.Options{})
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	row, _, err := store.Get(ctx, sharedkeys.Resource, sharedkeys.Name)
	if err == nil && (row != nil || own != nil) {
		w := sqlstore.Internal(sharedkeys.Resource, sharedkeys.Name, row, own)
		w.UID = sharedkeys.Name
		if own == nil {
			w.Operation = "delete"
		}
		_, err = store.Write(ctx, w)
	}
	return errors.Join(err, store.Close())
}
