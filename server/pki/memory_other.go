//go:build !linux

package pki

import (
	"os"
	"path/filepath"
)

// memoryFiles is a temporary folder, since this system has no files in memory. It remains if the process is killed.
type memoryFiles string

func newMemoryFiles() (memoryFiles, error) {
	folder, err := os.MkdirTemp("", "sqube-")
	return memoryFiles(folder), err
}

func (m memoryFiles) path(name string) string { return filepath.Join(string(m), name) }

func inMemory(string) bool { return false }

func (m memoryFiles) close() error { return os.RemoveAll(string(m)) }
