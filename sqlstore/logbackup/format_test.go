package logbackup

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/test/harness"
)

// TestDamage changes each file of a backup, at its beginning, in the middle and at its end.
func TestDamage(t *testing.T) {
	d := newDatabase(t, 1)
	place := folder(t.TempDir())
	d.write(t)
	for range 4 {
		d.follow(t, place, Options{})
		d.write(t)
	}
	d.follow(t, place, Options{})
	b := opened(t, place)
	files, err := place.List(t.Context())
	harness.Must(t, err)
	for _, file := range files {
		path := place.path(file.Name)
		text, err := os.ReadFile(path)
		harness.Must(t, err)
		for what, damaged := range map[string][]byte{
			"cut":     text[:len(text)-1],
			"empty":   {},
			"changed": append(append(append([]byte{}, text[:len(text)/2]...), text[len(text)/2]^1), text[len(text)/2+1:]...),
			"zeros":   make([]byte, len(text)),
		} {
			harness.Must(t, os.WriteFile(path, damaged, 0o600))
			if _, err := b.Fetch(t.Context(), 0, time.Time{}, 0, t.TempDir()); !errors.Is(err, errDamaged) {
				t.Errorf("%s, %s: %v", file.Name, what, err)
			}
		}
		harness.Must(t, os.Remove(path))
		if _, err := b.Fetch(t.Context(), 0, time.Time{}, 0, t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s, missing: %v", file.Name, err)
		}
		harness.Must(t, os.WriteFile(path, text, 0o600))
	}
	d.restores(t, place, d.newest, false)
}

// TestInterruptedDownload fails to read a file halfway, which doesn't mean that the file is damaged.
func TestInterruptedDownload(t *testing.T) {
	var file bytes.Buffer
	w, err := newWriter(&file, head{UpTo: 1})
	harness.Must(t, errors.Join(err, w.add(&dialect.LogRow{}), w.close()))
	reset := errors.New("connection reset")
	half := io.MultiReader(bytes.NewReader(file.Bytes()[:file.Len()/2]), iotest.ErrReader(reset))
	if err := read(half, nil, nil); !errors.Is(err, reset) || errors.Is(err, errDamaged) {
		t.Error(err)
	}
}

// TestLaterFormat refuses a file of a later sqube, and says so.
func TestLaterFormat(t *testing.T) {
	var file bytes.Buffer
	zip := gzip.NewWriter(&file)
	_, err := fmt.Fprintf(zip, "{\"sqube_backup\":%d}\n", format+1)
	harness.Must(t, errors.Join(err, zip.Close()))
	if err := read(&file, nil, nil); err == nil || errors.Is(err, errDamaged) || !strings.HasPrefix(err.Error(), "a later sqube wrote it (format 2)") {
		t.Error(err)
	}
}
