package datastore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/dialect/sqlite"
	"github.com/sqube/sqube/server/fleet"
	"github.com/sqube/sqube/server/wholefile"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/origin"
)

// Files are the databases of clusters in SQLite files: each in a folder of its own. It implements fleet.Databases.
//
// A folder gets its name when what is in it is complete and on disk, and loses it before anything is removed from it. Names that begin with a dot
// are those of folders that are being made or removed. What a killed process has left of them is removed before others are made.
type Files struct {
	folder string
	begin  func() error
	// template returns the file of a database without rows.
	template func() ([]byte, error)

	mu   sync.Mutex
	used map[string]*usedFile // by the id of the database
}

// usedFile is a database that somebody uses. It is locked for writing while it is opened, closed or copied closed.
type usedFile struct {
	sync.RWMutex
	users  int            // guarded by Files.mu
	engine *sqlite.Engine // nil while it is closed
}

// The beginnings of the names of folders that are being made or removed.
const (
	making   = ".new-"
	removing = ".removed-"
)

// fileName is that of a database in its folder.
const fileName = "sqube.db"

// ClustersFolder returns the folder with the databases of the clusters that the server of a folder hosts.
func ClustersFolder(dataDir string) string { return filepath.Join(dataDir, "clusters") }

// NewFiles returns the databases in a folder, which need not exist. No other process may make or remove databases there.
func NewFiles(folder string) *Files {
	f := &Files{folder: folder, used: map[string]*usedFile{}}
	f.begin, f.template = sync.OnceValue(f.prepare), sync.OnceValues(template)
	return f
}

// prepare makes the folder, and removes what killed processes have left unfinished.
func (f *Files) prepare() error {
	if err := wholefile.MakeFolder(f.folder, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(f.folder)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), making) || strings.HasPrefix(e.Name(), removing) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(f.folder, e.Name())))
		}
	}
	return err
}

func template() (content []byte, err error) {
	folder, err := os.MkdirTemp("", "sqube-template-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	file := filepath.Join(folder, fileName)
	engine, err := sqlite.OpenWith(context.Background(), file, sqlite.Options{NoSync: true, Many: true})
	if err == nil {
		err = engine.Close()
	}
	if err != nil {
		return nil, err
	}
	return os.ReadFile(file)
}

func (f *Files) path(id string) string { return filepath.Join(f.folder, id, fileName) }

// make makes a database: fill writes the file. It does nothing if there is one.
func (f *Files) make(id string, fill func(file string) error) (err error) {
	if err := f.begin(); err != nil {
		return err
	}
	if _, err := os.Lstat(f.path(id)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	folder, err := os.MkdirTemp(f.folder, making) // private
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(folder))
		}
	}()
	if err := errors.Join(fill(filepath.Join(folder, fileName)), wholefile.SyncFolder(folder)); err != nil {
		return err
	}
	if err := os.Rename(folder, filepath.Dir(f.path(id))); err != nil {
		return err
	}
	return wholefile.SyncFolder(f.folder)
}

// use returns a database, and a function that says that it is no longer used.
func (f *Files) use(id string) (file *usedFile, release func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	file = f.used[id]
	if file == nil {
		file = &usedFile{}
		f.used[id] = file
	}
	file.users++
	return file, sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if file.users--; file.users == 0 {
			delete(f.used, id)
		}
	})
}

// Create implements fleet.Databases. The first server to open the database stores the default objects.
func (f *Files) Create(_ context.Context, id string) error {
	content, err := f.template()
	if err != nil {
		return err
	}
	return f.make(id, func(name string) error {
		file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		_, err = file.Write(content)
		return errors.Join(err, file.Sync(), file.Close())
	})
}

// Fork implements fleet.Databases.
func (f *Files) Fork(ctx context.Context, from, to string, at fleet.Moment) (revision int64, err error) {
	err = f.make(to, func(file string) error {
		if err := f.clone(ctx, from, file); err != nil {
			return err
		}
		return sqlite.Adopt(ctx, file, forkTo(ctx, at, &revision))
	})
	if err == nil && revision == 0 { // there is a database
		return f.revision(ctx, to)
	}
	return revision, err
}

// forkTo returns what makes a copy of a database the beginning of another cluster.
func forkTo(ctx context.Context, at fleet.Moment, revision *int64) func(*sqlite.Engine) error {
	return func(c *sqlite.Engine) (err error) {
		*revision, err = origin.Fork(ctx, c, origin.At(at))
		return err
	}
}

// clone copies a database, open or not, to a file.
func (f *Files) clone(ctx context.Context, id, file string) error {
	from, release := f.use(id)
	defer release()
	if done, err := from.cloneOpen(ctx, file); done {
		return err
	}
	from.Lock() // it must not be opened meanwhile
	if from.engine == nil {
		defer from.Unlock()
		return sqlite.CloneFile(f.path(id), file)
	}
	from.Unlock()
	return f.clone(ctx, id, file)
}

// cloneOpen copies the database if it is open.
func (u *usedFile) cloneOpen(ctx context.Context, file string) (done bool, err error) {
	u.RLock()
	defer u.RUnlock()
	if u.engine == nil {
		return false, nil
	}
	return true, u.engine.Clone(ctx, file)
}

// revision returns the newest revision of a database.
func (f *Files) revision(ctx context.Context, id string) (revision int64, err error) {
	reader, err := sqlite.OpenReader(ctx, f.path(id))
	if err != nil {
		return 0, err
	}
	err = reader.Query(ctx, "SELECT revision FROM counter", nil, func(row dialect.Row) error { return row.Scan(&revision) })
	return revision, errors.Join(err, reader.Close())
}

// Restore implements fleet.Databases.
func (f *Files) Restore(ctx context.Context, backup, to string, at fleet.Moment) (revision int64, err error) {
	err = f.make(to, func(file string) error {
		if origin.IsFollowed(backup) {
			return restoreFollowed(ctx, backup, file, at, &revision)
		}
		switch dump, err := origin.IsPgDump(backup); {
		case err != nil:
			return err
		case dump:
			return fmt.Errorf("%s: %w", backup, origin.ErrPgDump)
		}
		copied, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			err = errors.Join(sqlite.Backup(ctx, backup, copied), copied.Close())
		}
		if err != nil {
			return err
		}
		return sqlite.Adopt(ctx, file, forkTo(ctx, at, &revision))
	})
	if err == nil && revision == 0 {
		return f.revision(ctx, to)
	}
	return revision, err
}

// restoreFollowed makes a database with what a backup has that follows another one, or an archive: objects without history.
func restoreFollowed(ctx context.Context, backup, file string, at fleet.Moment, revision *int64) error {
	return sqlite.Adopt(ctx, file, func(c *sqlite.Engine) error {
		if _, err := origin.Copy(ctx, c, backup, origin.At(at), nil); err != nil {
			return err
		}
		return forkTo(ctx, fleet.Moment{}, revision)(c)
	})
}

// Export implements fleet.Databases.
func (f *Files) Export(ctx context.Context, id, file string) error {
	if err := f.clone(ctx, id, file); err != nil {
		return err
	}
	return sqlite.Adopt(ctx, file, func(*sqlite.Engine) error { return nil })
}

// Import implements fleet.Databases. The file is only read: it can be anybody's.
func (f *Files) Import(ctx context.Context, id, file string) error {
	return f.make(id, func(to string) error {
		return sqlite.Adopt(ctx, to, func(e *sqlite.Engine) error { return importInto(ctx, e, file) })
	})
}

// importInto fills an empty database with all that an exported file has.
func importInto(ctx context.Context, e dialect.Engine, file string) (err error) {
	current, remove, err := sqlite.Current(ctx, file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	reader, err := sqlite.OpenReader(ctx, current)
	if err != nil {
		return err
	}
	_, err = origin.Transfer(ctx, e, reader)
	return errors.Join(err, reader.Close())
}

// Open implements fleet.Databases.
func (f *Files) Open(ctx context.Context, id string, o sqlstore.Options) (*sqlstore.Store, error) {
	if err := f.begin(); err != nil {
		return nil, err
	}
	file, release := f.use(id)
	engine, err := f.open(ctx, file, id)
	if err != nil {
		release()
		return nil, err
	}
	return sqlstore.Open(ctx, &openFile{engine, file, release}, o)
}

func (f *Files) open(ctx context.Context, file *usedFile, id string) (*sqlite.Engine, error) {
	file.Lock()
	defer file.Unlock()
	if file.engine != nil {
		return nil, fmt.Errorf("opening the database %s: %w", f.path(id), dialect.ErrLocked)
	}
	if _, err := os.Lstat(f.path(id)); err != nil { // otherwise it would begin an empty cluster
		return nil, err
	}
	engine, err := sqlite.OpenWith(ctx, f.path(id), sqlite.Options{Many: true})
	if err == nil {
		file.engine = engine
	}
	return engine, err
}

// openFile is an open database.
type openFile struct {
	*sqlite.Engine
	file    *usedFile
	release func()
}

// Close implements dialect.Engine.
func (o *openFile) Close() error {
	o.file.Lock() // for copies to end
	defer o.release()
	defer o.file.Unlock()
	o.file.engine = nil
	return o.Engine.Close()
}

// Remove implements fleet.Databases.
func (f *Files) Remove(_ context.Context, id string) error {
	if err := f.begin(); err != nil {
		return err
	}
	file, release := f.use(id)
	defer release()
	file.Lock() // for copies to end
	defer file.Unlock()
	if file.engine != nil {
		return fmt.Errorf("removing the database %s: %w", f.path(id), dialect.ErrLocked)
	}
	away := filepath.Join(f.folder, removing+id)
	if err := os.Rename(filepath.Dir(f.path(id)), away); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.Join(wholefile.SyncFolder(f.folder), os.RemoveAll(away))
}

// IDs implements fleet.Databases.
func (f *Files) IDs(context.Context) (ids []string, err error) {
	if err := f.begin(); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(f.folder)
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			ids = append(ids, e.Name())
		}
	}
	return ids, err
}

// Bytes implements fleet.Databases: what all files of the database take.
func (f *Files) Bytes(_ context.Context, id string) (size int64, err error) {
	entries, err := os.ReadDir(filepath.Dir(f.path(id)))
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) { // it has just been closed
			continue
		}
		if err != nil {
			return 0, err
		}
		size += info.Size()
	}
	return size, err
}
