package logbackup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/dialect/sqlite"
	"github.com/sqube/sqube/sqlstore/inspect"
	"github.com/sqube/sqube/test/harness"
)

// TestListDuringMerges lists a folder while files are merged. No row may be missing: a restore would silently be of an older state.
func TestListDuringMerges(t *testing.T) {
	place := folder(t.TempDir())
	g := newGeneration(1, time.Now())
	harness.Must(t, place.Put(t.Context(), g.snapshotPath(), func(io.Writer) error { return nil }))
	var written atomic.Int64 // there are files up to this revision
	stop, ended := make(chan struct{}), make(chan error, 1)
	create := func(after, upTo int64, level int) (string, error) {
		path := place.path(g.segmentPath(after, upTo, level))
		return path, os.WriteFile(path, nil, fileMode)
	}
	go func() {
		var parts []string
		for upTo := int64(1); ; upTo++ {
			path, err := create(upTo-1, upTo, 0)
			parts = append(parts, path)
			written.Store(upTo)
			if err == nil && len(parts) >= mergedFiles {
				if path, err = create(0, upTo, 1); err == nil {
					for _, part := range parts {
						err = errors.Join(err, os.Remove(part))
					}
					parts = []string{path}
				}
			}
			select {
			case <-stop:
				ended <- err
				return
			default:
			}
			if err != nil {
				ended <- err
				return
			}
		}
	}()
	for range 2000 {
		want := written.Load()
		files, err := place.List(t.Context())
		if err != nil {
			t.Error(err)
			break
		}
		got := int64(0)
		chain, _, _ := generations(files)[0].chain(0)
		if len(chain) > 0 {
			got = chain[len(chain)-1].upTo
		}
		if got < want {
			t.Errorf("the files listed end at revision %d, not %d", got, want)
			break
		}
	}
	close(stop)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// lacking is a folder whose next list lacks a file.
type lacking struct {
	folder
	name string
}

func (p *lacking) List(ctx context.Context) ([]File, error) {
	files, err := p.folder.List(ctx)
	files = slices.DeleteFunc(files, func(f File) bool { return f.Name == p.name })
	p.name = ""
	return files, err
}

// TestIncompleteList checks that a list which lacks a file between others, since files were merged while it was read, is read again.
func TestIncompleteList(t *testing.T) {
	d := newDatabase(t, 1)
	place := &lacking{folder: folder(t.TempDir())}
	f := d.follow(t, place, Options{})
	f.mergeFiles = 100
	for range 5 {
		d.write(t)
		f.stepped(t)
	}
	place.name = f.current.segments[1].Name
	d.restores(t, place, d.newest, false)
}

// failing is a reader that can't read a snapshot.
type failing struct {
	dialect.Reader
	err error
}

func (r failing) Query(ctx context.Context, statement string, args []any, row func(dialect.Row) error) error {
	if strings.HasSuffix(statement, "ORDER BY id") {
		return r.err
	}
	return r.Reader.Query(ctx, statement, args, row)
}

// TestFailedSnapshots checks that snapshots that fail do not leave a folder each.
func TestFailedSnapshots(t *testing.T) {
	d := newDatabase(t, 1)
	d.write(t)
	place := folder(t.TempDir())
	failed := errors.New("failed")
	f := &Follower{place: place, options: Options{Log: slog.New(slog.DiscardHandler)}, mergeFiles: mergedFiles, open: func(ctx context.Context) (dialect.Reader, error) {
		reader, err := sqlite.OpenReader(ctx, d.path)
		return failing{reader, failed}, err
	}}
	for range 5 {
		if err := f.Step(t.Context()); !errors.Is(err, failed) {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(string(place))
	if err != nil || len(entries) > 1 {
		t.Errorf("the place has %v, %v", entries, err)
	}
}

// TestOtherFolders checks that folders that are not of a backup are not read: some, such as lost+found, belong to another user.
func TestOtherFolders(t *testing.T) {
	place := folder(t.TempDir())
	harness.Must(t, place.Put(t.Context(), "lost+found/file", func(io.Writer) error { return nil }))
	if files, err := place.List(t.Context()); err != nil || len(files) > 0 {
		t.Errorf("the place lists %v, %v", files, err)
	}
}

// TestMomentBeforeRestore restores a moment at which the place followed a database that has been replaced by an older state since.
func TestMomentBeforeRestore(t *testing.T) {
	place := folder(t.TempDir())
	replaced, restored := newDatabase(t, 1), newDatabase(t, 2)
	replaced.clock -= time.Hour.Milliseconds()
	restored.clock -= 2 * time.Hour.Milliseconds()
	replaced.write(t)
	replaced.follow(t, place, Options{})
	for range 5 {
		replaced.write(t)
	}
	replaced.follow(t, place, Options{})
	restored.write(t)
	restored.follow(t, place, Options{})
	for revision := range replaced.written {
		replaced.restores(t, place, revision, true)
	}
	restored.restores(t, place, restored.newest, false)
}

// TestFailedUpload checks that a file which could not be written is not uploaded in part, even if the error wraps io.EOF.
func TestFailedUpload(t *testing.T) {
	uploads := 0
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		uploads++
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("ETag", `"0"`)
	}))
	defer store.Close()
	client, err := minio.New(strings.TrimPrefix(store.URL, "http://"), &minio.Options{Creds: credentials.NewStaticV4("key", "secret", ""), Region: "here"})
	harness.Must(t, err)
	failed := fmt.Errorf("failed to connect: tls error: %w", io.EOF) // pgx, if a proxy closes a connection to Postgres at once
	err = (&bucket{client: client, name: "bucket"}).Put(t.Context(), "file", func(to io.Writer) error {
		if _, err := io.WriteString(to, "part"); err != nil {
			return err
		}
		return failed
	})
	if !errors.Is(err, failed) || uploads > 0 {
		t.Fatalf("got %v after %d uploads", err, uploads)
	}
}

// TestPrefix checks that files are listed where they are written, however the prefix is written.
func TestPrefix(t *testing.T) {
	for text, prefix := range map[string]string{"s3://bucket": "", "s3://bucket/": "", "s3://bucket//a//b/./c/": "a/b/c"} {
		place, err := ParsePlace(text)
		harness.Must(t, err)
		if b := place.(*bucket); b.prefix != prefix || b.key("file") != strings.TrimPrefix(prefix+"/file", "/") {
			t.Errorf("%s: files are listed under %q, and written to %q", text, b.prefix, b.key("file"))
		}
	}
}

// TestDamagedEnd checks that the error about a damaged last file says how to continue, and that this works.
func TestDamagedEnd(t *testing.T) {
	d := newDatabase(t, 1)
	place := folder(t.TempDir())
	f := d.follow(t, place, Options{})
	d.write(t)
	f.stepped(t)
	last := place.path(f.current.segments[0].Name)
	harness.Must(t, os.Truncate(last, 10))
	if _, err := Follow(t.Context(), place, f.open, f.options); !errors.Is(err, errDamaged) || !strings.Contains(err.Error(), "move it away") {
		t.Errorf("after the last file got damaged: %v", err)
	}
	harness.Must(t, os.Rename(last, last+".away"))
	d.follow(t, place, Options{})
	d.restores(t, place, d.newest, false)
}

// TestLostFiles removes files of a backup, one after the other. Each state whose files are there can be restored, and none beside it; the
// error says what lacks and what does not.
func TestLostFiles(t *testing.T) {
	d := newDatabase(t, 1)
	place := folder(t.TempDir())
	d.write(t)
	f := d.follow(t, place, Options{})
	f.mergeFiles = 100
	var ends []int64 // of segments
	for range 3 {
		for range 3 {
			d.write(t)
			f.stepped(t)
			ends = append(ends, d.newest)
		}
		f.renewed(t)
	}
	d.write(t)
	whole, err := Open(t.Context(), place)
	if err != nil || len(whole.Spans) != 4 || whole.Lost() != nil {
		t.Fatalf("the place has %+v, %v", whole, err)
	}
	segment := func(span, n int) string { return whole.Spans[span].chain[n].Name }
	folderOf := func(span int) string { return filepath.Dir(whole.Spans[span].snapshot.Name) }
	for what, test := range map[string]struct {
		lost             string
		after, upTo      int64 // what lacks; 0 if nothing does
		next, restorable int64 // the first revision after it; the last one of all
	}{
		"a file in the middle":       {segment(1, 1), ends[3], ends[4], ends[5], ends[8]},
		"the first file":             {segment(1, 0), ends[2], ends[3], ends[5], ends[8]},
		"the last file of a day":     {segment(1, 2), ends[4], ends[5], ends[5], ends[8]},
		"a day":                      {folderOf(1), ends[2], ends[5], ends[5], ends[8]},
		"a snapshot":                 {whole.Spans[1].snapshot.Name, ends[2], ends[5], ends[5], ends[8]},
		"the first day":              {folderOf(0), 0, 0, 0, ends[8]},
		"the last day's first file":  {segment(2, 0), ends[5], ends[6], ends[8], ends[8]},
		"the last day":               {folderOf(3), 0, 0, 0, ends[8]},
		"a file, and the day behind": {segment(2, 1), ends[6], ends[7], 0, ends[6]},
	} {
		t.Run(what, func(t *testing.T) {
			aside := t.TempDir()
			move := func(name string) {
				t.Helper()
				from, to := place.path(name), filepath.Join(aside, strings.ReplaceAll(name, "/", "_"))
				harness.Must(t, os.Rename(from, to))
				t.Cleanup(func() {
					harness.Must(t, os.Rename(to, from))
				})
			}
			move(test.lost)
			if test.restorable != ends[8] {
				move(folderOf(3))
			}
			b := opened(t, place)
			lost := b.Lost()
			if (lost != nil) != (test.after != 0) {
				t.Fatalf("the loss is %v", lost)
			}
			if lost != nil {
				want := fmt.Sprintf("lacks the files with revisions %d to %d,", test.after+1, test.upTo)
				ways := fmt.Sprintf("--to-revision takes revisions up to %d", test.after)
				if test.next != 0 {
					ways += fmt.Sprintf(", and from %d on", test.next)
				}
				if !strings.Contains(lost.Error(), want) || !strings.HasSuffix(lost.Error(), ways) {
					t.Errorf("the error is %v; want %s …%s", lost, want, ways)
				}
			}
			for revision := b.Spans[0].From; revision <= ends[8]; revision++ {
				lacks := test.after != 0 && revision > test.after && (test.next == 0 || revision < test.next)
				if !lacks {
					d.restores(t, place, revision, revision != test.after && revision != test.next) // when their states ended, or began, is lost
					continue
				}
				if _, err := b.Fetch(t.Context(), revision, time.Time{}, 0, t.TempDir()); !errors.As(err, new(*Gap)) {
					t.Errorf("revision %d is restored: %v", revision, err)
				}
				if d.written[revision] == d.written[test.next] { // it is unused
					continue
				}
				if _, err := b.Fetch(t.Context(), 0, time.UnixMilli(d.written[revision]), 0, t.TempDir()); !errors.As(err, new(*Gap)) {
					t.Errorf("the moment of revision %d is restored: %v", revision, err)
				}
			}
			_, err = b.Fetch(t.Context(), 0, time.Time{}, 0, t.TempDir())
			if wantLoss := test.restorable != ends[8]; errors.As(err, new(*Gap)) != wantLoss {
				t.Errorf("the newest revision: %v", err)
			}
			for key, versions := range d.versions {
				var got []int64
				err := History(t.Context(), place, object(key[8:]), func(v *inspect.Version) error {
					got = append(got, v.ID)
					return nil
				})
				if lost != nil && !errors.As(err, new(*Gap)) || lost == nil && err != nil && !errors.Is(err, inspect.ErrUnknown) {
					t.Errorf("of versions %v of %s, it has %v, %v", versions, key, got, err)
				}
			}
		})
	}
}
