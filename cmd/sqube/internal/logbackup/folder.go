package logbackup

import (
	"context"
	"errors"
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

func (f folder) List(context.Context) (files []File, err error) {
	err = fs.WalkDir(os.DirFS(string(f)), ".", func(name string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the folder does not exist, or the file has been removed meanwhile
		}
		if err != nil || !entry.Type().IsRegular() || strings.HasPrefix(entry.Name(), ".") {
			return err
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			files = append(files, File{name, info.Size(), info.ModTime()})
		}
		return err
	})
	return files, err
}

func (f folder) Open(_ context.Context, name string) (io.ReadCloser, error) {
	return os.Open(f.path(name))
}

func (f folder) Put(_ context.Context, name string, write func(io.Writer) error) error {
	path := f.path(name)
	if err := makeFolder(filepath.Dir(path)); err != nil {
		return err
	}
	return wholefile.Replace(path, fileMode, func(to *os.File) error { return write(to) })
}

func (f folder) Remove(_ context.Context, name string) error {
	err := os.Remove(f.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		_ = os.Remove(filepath.Dir(f.path(name))) // if that was the last file
	}
	return err
}

func (f folder) Hold(context.Context) (<-chan struct{}, func(context.Context) error, error) {
	if err := makeFolder(string(f)); err != nil {
		return nil, nil, err
	}
	lock, err := os.OpenFile(f.path(".lock"), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, fileMode)
	if err != nil {
		return nil, nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = ErrHeld
		}
		return nil, nil, errors.Join(err, lock.Close())
	}
	if err := f.sweep(); err != nil {
		return nil, nil, errors.Join(err, lock.Close())
	}
	return nil, func(context.Context) error { return lock.Close() }, nil
}

// sweep removes files that killed processes left unfinished. Call it under the lock.
func (f folder) sweep() error {
	return fs.WalkDir(os.DirFS(string(f)), ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() && wholefile.IsUnfinished(entry.Name()) {
			err = os.Remove(f.path(name))
		}
		return err
	})
}

// makeFolder creates a folder and its parents durably.
func makeFolder(path string) error {
	err := os.Mkdir(path, folderMode)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeFolder(filepath.Dir(path)); err != nil {
			return err
		}
		err = os.Mkdir(path, folderMode)
	}
	switch {
	case err == nil:
		return wholefile.SyncFolder(filepath.Dir(path))
	case errors.Is(err, fs.ErrExist):
		return nil
	}
	return err
}
