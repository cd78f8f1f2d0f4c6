package serve

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sqube/sqube/test/faults"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// spans returns the ranges of revisions that sqube restore --list prints for a place.
func spans(t *testing.T, place string) (all [][2]int) {
	t.Helper()
	stdout, _, code := sqube.Run(t, []string{"restore", place, "--list"})
	if code != 0 {
		return nil // it has nothing yet
	}
	for line := range strings.Lines(stdout) {
		if fields := strings.Fields(line); fields[0] != "FROM" {
			all = append(all, [2]int{number(t, fields[2]), number(t, fields[3])})
		}
	}
	return all
}

// awaitBackup waits until a place has a revision: in a file with that in its name, or in a snapshot that no file follows yet.
func awaitBackup(t *testing.T, place, revision string) {
	t.Helper()
	harness.Eventually(t, place+" holds revision "+revision, func() bool {
		files, err := filepath.Glob(filepath.Join(place, "*", "*.jsonl.gz"))
		harness.Must(t, err)
		for _, file := range files {
			if _, upTo, found := strings.Cut(filepath.Base(file), "-"); found && upTo[:20] >= fmt.Sprintf("%020s", revision) {
				return true
			}
		}
		if n := len(files); n == 0 || n > 1 && filepath.Dir(files[n-1]) == filepath.Dir(files[n-2]) {
			return false
		}
		held := spans(t, place)
		return len(held) > 0 && held[len(held)-1][1] >= number(t, revision)
	})
}

// TestFollow backs up a database while it is served and the backup is killed from time to time, kills the server, and continues
// elsewhere with the backup.
func TestFollow(t *testing.T) {
	t.Parallel()
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		database := []string{"--datastore", engine.Datastore}
		s := serve(t, database)
		c := client(t, s.Kubeconfig)
		place := filepath.Join(t.TempDir(), "here")
		follow := append([]string{"backup", "--follow", place, "--sync-interval", "10ms"}, database...)
		follower := sqube.Command(t, follow, openUmask)
		awaitBackup(t, place, setData(t, c, "gone", "soon"))
		refuses(t, "another sqube backup --follow writes there", follow)

		want := map[string]string{"gone": ""}
		moment := setData(t, c, "kept", "then")
		harness.Must(t, c.CoreV1().ConfigMaps("default").Delete(t.Context(), "gone", metav1.DeleteOptions{}))
		for i := range 60 {
			if i%20 == 10 {
				follower.Kill(t)
				follower = sqube.Command(t, follow)
			}
			name := fmt.Sprint("many-", i%25)
			want[name] = fmt.Sprint("value ", i)
			setData(t, c, name, want[name])
		}
		want["kept"] = "now"
		last := setData(t, c, "kept", want["kept"])
		awaitBackup(t, place, last)
		harness.Must(t, s.Signal(syscall.SIGKILL))
		harness.Must(t, follower.Signal(syscall.SIGKILL))
		s.Code(t)
		follower.Code(t)

		isPrivate(t, place)
		there := filepath.Join(t.TempDir(), "there")
		harness.Must(t, os.Rename(place, there))
		dir := t.TempDir()
		succeeds(t, []string{"restore", there, "--history", "168h", "--data-dir", dir})
		succeeds(t, []string{"check", "--data-dir", dir})
		harness.Must(t, os.CopyFS(filepath.Join(dir, "pki"), os.DirFS(filepath.Join(s.DataDir, "pki"))))
		again := serveIn(t, dir, nil)
		c = client(t, again.Kubeconfig)
		for name, want := range want {
			if got := data(t, c, name); got != want {
				t.Errorf("%s is %q instead of %q", name, got, want)
			}
		}
		if engine.Name == "postgres" {
			return // the backup and what was restored from it are like those of SQLite
		}
		isAsItWas(t, c, moment, map[string]string{"kept": "then", "gone": "soon"})
		isAsItWas(t, c, last, want)
		isLost(t, c, number(t, last)+1000)
		areLost(t, again.Kubeconfig, number(t, last)+1000)
		if text := undo(t, again.Kubeconfig, "configmap/gone", "-n", "default", "--apply"); data(t, c, "gone") != "soon" {
			t.Errorf("the undo of a deletion before the restore prints\n%s", text)
		}
		version := setData(t, c, "kept", "again")
		if number(t, version) <= number(t, last) {
			t.Errorf("version %s comes after %s", version, last)
		}

		restoresMoment(t, there, moment)
		refuses(t, "does not hold revision", []string{"restore", there, "--to-revision", version, "--datastore", "sqlite://" + filepath.Join(t.TempDir(), "later.db")})

		// The restored server backs up to the same place, and reuses none of its revisions.
		follower = sqube.Command(t, []string{"backup", "--follow", there, "--data-dir", dir})
		awaitBackup(t, there, version)
		follower.Stop(t)
		again.Stop(t)
		if text := follower.Stdout(t); !strings.Contains(text, there+" holds sqlite://") {
			t.Errorf("at its end it prints %q", text)
		}
		if held := spans(t, there); len(held) != 2 {
			t.Errorf("the place has %v", held)
		}
		succeeds(t, []string{"restore", there, "--to-revision", moment, "--data-dir", dir, "--force"})
		once := serveIn(t, dir, nil)
		if first := setData(t, client(t, once.Kubeconfig), "kept", "once more"); number(t, first) <= number(t, version) {
			t.Errorf("version %s comes after %s", first, version)
		}
		once.Stop(t)
	})
}

// isAsItWas compares ConfigMaps as they were at a revision.
func isAsItWas(t *testing.T, c kubernetes.Interface, revision string, want map[string]string) {
	t.Helper()
	list, err := c.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{ResourceVersion: revision, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	if err != nil {
		t.Errorf("a list at revision %s, before the restore, returns %v", revision, err)
		return
	}
	values := map[string]string{}
	for _, item := range list.Items {
		values[item.Name] = item.Data["value"] + item.Data["n"]
	}
	for name, want := range want {
		if values[name] != want {
			t.Errorf("at revision %s, %s was %q instead of %q", revision, name, values[name], want)
		}
	}
}

// isLost reads at a revision that a restored database has jumped over.
func isLost(t *testing.T, c kubernetes.Interface, revision int) {
	t.Helper()
	_, err := c.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{ResourceVersion: fmt.Sprint(revision), ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	if !apierrors.IsResourceExpired(err) {
		t.Errorf("a list at revision %d, which is lost, returns %v", revision, err)
	}
}

// areLost asks for the changes, and for an undo, at a revision that a restored database has jumped over.
func areLost(t *testing.T, kubeconfig string, revision int) {
	t.Helper()
	changes, at := changesIn(t, kubeconfig, "default"), fmt.Sprint(revision)
	_, list := changes.List(t.Context(), metav1.ListOptions{ResourceVersion: at, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	_, watch := changes.Watch(t.Context(), metav1.ListOptions{ResourceVersion: at})
	for what, err := range map[string]error{"list": list, "watch": watch} {
		if !apierrors.IsResourceExpired(err) {
			t.Errorf("a %s of changes at revision %s, which is lost, returns %v", what, at, err)
		}
	}
	if text := undo(t, kubeconfig, "configmap/kept", "-n", "default", "--to", at); !strings.Contains(text, "was lost") && !strings.Contains(text, "is not known any more") {
		t.Errorf("an undo to revision %s, which is lost, prints\n%s", at, text)
	}
}

// changesIn returns a client for the changes in a namespace.
func changesIn(t *testing.T, kubeconfig, namespace string) dynamic.ResourceInterface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	harness.Must(t, err)
	return dynamic.NewForConfigOrDie(config).Resource(changesResource).Namespace(namespace)
}

// restoresMoment restores the moment when "kept" was "then" and "gone" existed, which only the backup has.
func restoresMoment(t *testing.T, backup, moment string) {
	t.Helper()
	then := "sqlite://" + filepath.Join(t.TempDir(), "then.db")
	succeeds(t, []string{"restore", backup, "--to-revision", moment, "--datastore", then})
	if text := succeeds(t, []string{"show", "configmaps", "kept", "--datastore", then}); !strings.Contains(text, "value: then") {
		t.Errorf("at revision %s it was\n%s", moment, text)
	}
	succeeds(t, []string{"show", "configmaps", "gone", "--datastore", then})
}

// isPrivate checks that only the owner may read the files below a folder.
func isPrivate(t *testing.T, folder string) {
	t.Helper()
	harness.Must(t, filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if info, err := entry.Info(); err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	}))
}

// TestFollowComesLate makes a server compact versions that its backup does not have yet.
func TestFollowComesLate(t *testing.T) {
	t.Parallel()
	s := serve(t, []string{"--retention", "1s", "--history=0"})
	c := client(t, s.Kubeconfig)
	place := t.TempDir()
	follow := []string{"backup", "--follow", place, "--data-dir", s.DataDir}
	follower := sqube.Command(t, follow)
	awaitBackup(t, place, setData(t, c, "kept", "first"))
	follower.Stop(t)
	missed := setData(t, c, "kept", "missed")
	last := setData(t, c, "kept", "last")
	awaitForgotten(t, s, missed)
	follower = sqube.Command(t, follow)
	awaitBackup(t, place, last)
	follower.Stop(t)
	if text := follower.Log(t); !strings.Contains(text, "were compacted before they were backed up") {
		t.Errorf("it prints %q", text)
	}
	for _, held := range spans(t, place) {
		if held[0] <= number(t, missed) && number(t, missed) <= held[1] {
			t.Errorf("it missed %s, but reports that it has %v", missed, held)
		}
	}
	restored := []string{"--data-dir", t.TempDir()}
	refuses(t, "does not hold revision "+missed, append([]string{"restore", place, "--to-revision", missed}, restored...))
	succeeds(t, append([]string{"restore", place}, restored...))
	if text := succeeds(t, append([]string{"show", "configmaps", "kept"}, restored...)); !strings.Contains(text, "value: last") {
		t.Errorf("restored is\n%s", text)
	}
	s.Stop(t)
}

// TestFollowWhileSyncsFail makes the disk of the backup fail to sync for a while: the server is unaffected, and the backup
// continues.
func TestFollowWhileSyncsFail(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	c := client(t, s.Kubeconfig)
	disk := faults.NewDisk(t)
	place := t.TempDir()
	follower := sqube.Command(t, []string{"backup", "--follow", place, "--data-dir", s.DataDir, "--sync-interval", "10ms"}, disk.Run)
	awaitBackup(t, place, setData(t, c, "kept", "before"))
	disk.FailSync(true)
	last := setData(t, c, "kept", "meanwhile")
	follower.Logged(t, "the backup fails; trying again", 1)
	disk.FailSync(false)
	awaitBackup(t, place, last)
	follower.Stop(t)
	s.Stop(t)
	if text := follower.Log(t); strings.Count(text, "\n") > 4 {
		t.Errorf("it prints %s", text)
	}
	for line := range strings.SplitSeq(names(t, place), " ") {
		if _, err := strconv.Atoi(line[:1]); err != nil && line != ".lock" {
			t.Errorf("it leaves %s", line)
		}
	}
}

// TestLostSegment loses a file from the middle of a backup.
func TestLostSegment(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	c := client(t, s.Kubeconfig)
	place := t.TempDir()
	follower := sqube.Command(t, []string{"backup", "--follow", place, "--data-dir", s.DataDir, "--sync-interval", "10ms"})
	var versions []string
	var times []time.Time
	for i := range 4 {
		versions = append(versions, setData(t, c, "kept", fmt.Sprint(i)))
		awaitBackup(t, place, versions[i])
		times = append(times, time.Now())
		time.Sleep(time.Millisecond) // rows have times in milliseconds
	}
	follower.Stop(t)
	s.Stop(t)
	segments, err := filepath.Glob(filepath.Join(place, "*", "0*.jsonl.gz"))
	harness.Must(t, err)
	var after, upTo int
	for _, path := range segments {
		from, to, _ := strings.Cut(strings.TrimSuffix(filepath.Base(path), ".0.jsonl.gz"), "-")
		if number(t, from) < number(t, versions[2]) && number(t, versions[2]) <= number(t, to) {
			after, upTo = number(t, from), number(t, to)
			harness.Must(t, os.Remove(path))
		}
	}

	stdout, stderr, code := sqube.Run(t, []string{"restore", place, "--list"})
	if err := oneLine(stderr, fmt.Sprintf("lacks the files with revisions %d to %d,", after+1, upTo)); err != nil || code != 1 || strings.Count(stdout, "\n") != 2 {
		t.Errorf("the list ends with code %d and\n%s%s%v", code, stdout, stderr, err)
	}
	if want := fmt.Sprint("--to-revision takes revisions up to ", after); !strings.Contains(stderr, want) {
		t.Errorf("it says\n%s, not %s", stderr, want)
	}
	to := func() string { return "sqlite://" + filepath.Join(t.TempDir(), "to.db") }
	const lacks = "lacks the files with revisions "
	refuses(t, lacks, []string{"restore", place, "--datastore", to()})
	refuses(t, lacks, []string{"restore", place, "--to-revision", versions[3], "--datastore", to()})
	refuses(t, lacks, []string{"restore", place, "--to-time", times[3].Format(time.RFC3339Nano), "--datastore", to()})
	succeeds(t, []string{"restore", place, "--to-revision", versions[1], "--datastore", to()})
	succeeds(t, []string{"restore", place, "--to-time", times[0].Format(time.RFC3339Nano), "--datastore", to()})

	archive := []string{"--archive", place, "--datastore", "sqlite://" + filepath.Join(s.DataDir, "sqube.db")}
	stdout, stderr, code = sqube.Run(t, append([]string{"history", "configmaps", "kept"}, archive...))
	if err := oneLine(stderr, lacks); err != nil || code != 1 || !strings.Contains(stdout, "\n"+versions[3]+" ") {
		t.Errorf("the history ends with code %d and\n%s%s%v", code, stdout, stderr, err)
	}

	// The database still has them, so a restart mends the backup.
	follower = sqube.Command(t, []string{"backup", "--follow", place, "--data-dir", s.DataDir})
	harness.Eventually(t, "the backup is whole", func() bool { return len(spans(t, place)) != 0 })
	follower.Stop(t)
	if text := follower.Log(t); !strings.Contains(text, "a file is missing") {
		t.Errorf("it logs\n%s", text)
	}
	succeeds(t, []string{"restore", place, "--datastore", to()})
}

// TestFollowIsRefused passes what can't be followed, or restored.
func TestFollowIsRefused(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()
	refuses(t, "give one FILE, or --follow and a place", []string{"backup"})
	refuses(t, "not both", []string{"backup", "file", "--follow", empty})
	refuses(t, "--sync-interval", []string{"backup", "--follow", empty, "--sync-interval", "0s"})
	refuses(t, "a folder or s3://BUCKET/PREFIX", []string{"backup", "--follow", "gs://bucket", "--data-dir", empty})
	for _, wrong := range []string{"s3://", "s3://key:secret@bucket/x", "s3://bucket/x?endpoint=ftp://h", "s3://bucket/x?key=secret"} {
		_, stderr, code := sqube.Run(t, []string{"restore", wrong, "--list"})
		if err := oneLine(stderr, ""); err != nil || code != 1 || strings.Contains(stderr, "secret") {
			t.Errorf("%s: %v: %s", wrong, err, stderr)
		}
	}
	refuses(t, "no such file", []string{"backup", "--follow", filepath.Join(empty, "place"), "--data-dir", empty})
	if left := names(t, empty); left != "" {
		t.Errorf("it left %s", left)
	}
	refuses(t, "holds no backup", []string{"restore", empty, "--data-dir", empty})
	refuses(t, "holds no backup", []string{"restore", empty, "--list"})
	file := filepath.Join(empty, "file")
	harness.Must(t, os.WriteFile(file, nil, 0o600))
	refuses(t, "there is nothing in it", []string{"restore", file, "--list"})
}
