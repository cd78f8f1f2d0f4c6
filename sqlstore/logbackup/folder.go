package logbackup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/sqube/sqube/server/wholefile"
)

// folder is a Place in the file system.
type folder string

// Its files are for their owner only: they hold secrets.
const (
	folderMode fs.FileMode = 0o700
	fileMode   fs.FileMode = 0o600
)

func (f folder) String() string { return string(f) }

func (f folder) path(name string) string { return filepath.Join(string(f), filepath.FromSlash(name)) }

// listings is how often to list a folder from which files are removed meanwhile: more often than files are removed at once.
const listings = 2 * mergedFiles

func (f folder) List(ctx context.Context) (files []File, err error) {
	for range listings {
		// If a file is gone, it may have been merged into one that was not there yet.
		if files, err = f.list(); !errors.Is(err, fs.ErrNotExist) || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", f, err) // which names the path below f
	}
	return files, err
}

// list lists the files, or returns fs.ErrNotExist if one is removed meanwhile.
func (f folder) list() (files []File, err error) {
	err = f.walk(func(name string, entry fs.DirEntry) error {
		if strings.HasPrefix(entry.Name(), ".") {
			return nil
		}
		info, err := entry.Info()
		if err == nil {
			files = append(files, File{name, info.Size(), info.ModTime()})
		}
		return err
	})
	return files, err
}

// walk calls visit with each file of the backup. Other folders, such as lost+found at the top of a file system, may not be readable.
func (f folder) walk(visit func(name string, entry fs.DirEntry) error) error {
	return fs.WalkDir(os.DirFS(string(f)), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // the folder does not exist, or has been removed meanwhile
			return nil
		case err != nil:
			return err
		case entry.IsDir() && name != "." && !generationName.MatchString(name):
			return fs.SkipDir
		case entry.Type().IsRegular():
			return visit(name, entry)
		}
		return nil
	})
}

func (f folder) Open(_ context.Context, name string) (io.ReadCloser, error) {
	return os.Open(f.path(name))
}

func (f folder) Put(_ context.Context, name string, write func(io.Writer) error) error {
	path := f.path(name)
	if err := wholefile.MakeFolder(filepath.Dir(path), folderMode); err != nil {
		return err
	}
	return wholefile.Replace(path, fileMode, func(to *os.File) error { return write(to) })
}

func (f folder) Remove(_ context.Context, name string) error {
	err := os.Remove(f.path(name))
	if err == nil || errors.Is(err, fs.ErrNotExist) { // a file that could not be written has left its folder
		_ = os.Remove(filepath.Dir(f.path(name))) // if that was the last file
		return nil
	}
	return err
}

func (f folder) Hold(context.Context) (<-chan struct{}, func() error, error) {
	if err := wholefile.MakeFolder(string(f), folderMode); err != nil {
		return nil, nil, err
	}
	lock, err := os.OpenFile(f.path(".lock"), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, fileMode)
	if err != nil {
		return nil, nil, err
	}
	if err := wholefile.Chown(lock, string(f)); err != nil {
		return nil, nil, errors.Join(err, lock.Close())
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = ErrHeld
		}
		return nil, nil, errors.Join(err, lock.Close())
	}
	return nil, lock.Close, nil
}

func (f folder) Sweep(context.Context) error {
	return f.walk(func(name string, entry fs.DirEntry) error {
		if wholefile.IsUnfinished(entry.Name()) {
			return os.Remove(f.path(name))
		}
		return nil
	})
}
