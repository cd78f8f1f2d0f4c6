package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
)

func (o *serveOptions) addInMemoryFlag(fs *pflag.FlagSet) {
	fs.BoolVar(&o.server.InMemory, "in-memory", false, "Keep the database and the keys in memory only, for tests. The only file on disk is admin.kubeconfig under --data-dir, which the server removes when it stops.")
}

// completeInMemory checks that an in-memory server would not hide existing data.
func (o *serveOptions) completeInMemory() error {
	if !o.server.InMemory {
		return nil
	}
	if o.database != "" {
		return errors.New("--in-memory and --datastore must not be given together")
	}
	if keys := filepath.Join(o.server.DataDir, "pki"); exists(keys) {
		return fmt.Errorf("--in-memory would replace the admin.kubeconfig of the cluster whose keys are in %s: give another --data-dir", keys)
	}
	o.datastore.Path, o.datastore.Memory = "", true
	return nil
}

// removeInMemoryFiles removes the files that an in-memory server has on disk.
func (o *serveOptions) removeInMemoryFiles() error {
	if !o.server.InMemory {
		return nil
	}
	err := os.Remove(filepath.Join(o.server.DataDir, "admin.kubeconfig"))
	if errors.Is(err, fs.ErrNotExist) { // the server did not get that far
		return nil
	}
	return err
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
