package serve

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// archivedVersion is a line of an archive, as other tools read it.
type archivedVersion struct {
	ID                        int
	Operation, Resource, Name string
	Value                     string
	WrittenAt                 int64  `json:"written_at"`
	User                      string `json:"user_name"`
}

// archivedVersions returns the versions of a resource in the files of an archive, in order, and the text of all files.
func archivedVersions(t *testing.T, place, resource string) (versions []archivedVersion, text string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(place, "20??-??-??-*", "*.jsonl.gz"))
	harness.Must(t, err)
	for _, path := range paths {
		f, err := os.Open(path)
		harness.Must(t, err)
		zip, err := gzip.NewReader(f)
		harness.Must(t, err)
		lines := bufio.NewScanner(zip)
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			text += lines.Text() + "\n"
			var v archivedVersion
			harness.Must(t, json.Unmarshal(lines.Bytes(), &v))
			if v.Resource == resource && filepath.Base(path) != "snapshot.jsonl.gz" {
				versions = append(versions, v)
			}
		}
		harness.Must(t, lines.Err())
		harness.Must(t, f.Close())
	}
	return versions, text
}

// awaitForgotten waits until the database of a server no longer keeps a revision.
func awaitForgotten(t *testing.T, s *sqube.Server, revision string) {
	t.Helper()
	harness.Eventually(t, "revision "+revision+" is compacted", func() bool { return s.Compacted(t) >= number(t, revision) })
}

// showsVersion checks the output of sqube show for a ConfigMap at a revision.
func showsVersion(t *testing.T, name, revision, want string, where []string) {
	t.Helper()
	if text := succeeds(t, append([]string{"show", "configmaps", name, "--at", revision}, where...)); !strings.Contains(text, "value: "+want+"\n") {
		t.Errorf("at revision %s, %s was %q, but is shown as\n%s", revision, name, want, text)
	}
}

// revisionsOf returns the first column of the output of sqube history.
func revisionsOf(t *testing.T, args ...string) (revisions []string) {
	t.Helper()
	for line := range strings.Lines(succeeds(t, append([]string{"history"}, args...))) {
		if fields := strings.Fields(line); fields[0] != "REVISION" {
			revisions = append(revisions, fields[0])
		}
	}
	return revisions
}

// TestArchive runs a server that compacts quickly and is killed from time to time: removed versions are in the archive, once,
// readable by people and tools, and encrypted ones are encrypted there. TestArchiveOfReplicas does the same on Postgres.
func TestArchive(t *testing.T) {
	t.Parallel()
	keys := filepath.Join(t.TempDir(), "encryption.yaml")
	harness.Must(t, os.WriteFile(keys, []byte(encryptSecrets), 0o600))
	place := filepath.Join(t.TempDir(), "archive")
	database := []string{"--datastore", harness.SQLite(t), "--encryption-provider-config", keys}
	args := append([]string{"--archive", place, "--retention", "1s", "--history=0"}, database...)
	s := serve(t, args, openUmask)
	c := client(t, s.Kubeconfig)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "door"}, StringData: map[string]string{"code": "Zm9yIG5vIG9uZQ"}}
	_, err := c.CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{})
	harness.Must(t, err)
	harness.Must(t, c.CoreV1().Secrets("default").Delete(t.Context(), "door", metav1.DeleteOptions{}))
	removed := setData(t, c, "gone", "soon")
	harness.Must(t, c.CoreV1().ConfigMaps("default").Delete(t.Context(), "gone", metav1.DeleteOptions{}))

	var revisions []string
	for i := range 60 {
		if i%30 == 15 {
			awaitForgotten(t, s, revisions[i-15])
			s.Kill(t)
			s.Start(t)
		}
		revisions = append(revisions, setData(t, c, "kept", fmt.Sprint("value-", i)))
	}
	last := revisions[len(revisions)-1]
	marker := setData(t, c, "marker", "")
	setData(t, c, "marker", "again")
	awaitForgotten(t, s, marker)
	refuses(t, "no longer kept", append([]string{"show", "configmaps", "kept", "--at", revisions[0]}, database...))
	awaitBackup(t, place, marker)

	with := append([]string{"--archive", place}, database...)
	if got := revisionsOf(t, append([]string{"configmaps", "kept"}, with...)...); !slices.Equal(got, revisions) {
		t.Errorf("of revisions\n%v\nthe history has\n%v", revisions, got)
	}
	if got := revisionsOf(t, append([]string{"configmaps", "kept"}, database...)...); !slices.Equal(got, []string{last}) {
		t.Errorf("the database still has %v", got)
	}
	text := succeeds(t, append([]string{"history", "configmaps", "kept"}, with...))
	if strings.Count(text, " .data.value") != len(revisions)-1 {
		t.Errorf("the changes are\n%s", text)
	}
	for _, i := range []int{0, 14, 47} {
		showsVersion(t, "kept", revisions[i], fmt.Sprint("value-", i), with)
	}
	showsVersion(t, "gone", removed, "soon", with)
	refuses(t, "configmaps gone: it did not exist at that revision", append([]string{"show", "configmaps", "gone", "--at", revisions[0]}, with...))
	refuses(t, "configmaps gone: no version of it is kept", append([]string{"show", "configmaps", "gone"}, database...))
	if got := revisionsOf(t, append([]string{"secrets", "door"}, with...)...); len(got) != 2 {
		t.Errorf("the versions of the secret are %v", got)
	}
	isPrivate(t, place)
	s.Stop(t)

	versions, content := archivedVersions(t, place, "configmaps")
	archivedOnce(t, versions, revisions)
	if strings.Contains(content, "Zm9yIG5vIG9uZQ") || !strings.Contains(content, `"name":"door"`) {
		t.Error("the archive has the secret in plain text, or not at all")
	}

	// The archive is a backup, too.
	then := "sqlite://" + filepath.Join(t.TempDir(), "then.db")
	succeeds(t, []string{"restore", place, "--to-revision", revisions[3], "--datastore", then})
	if text := succeeds(t, []string{"show", "configmaps", "kept", "--datastore", then}); !strings.Contains(text, "value: value-3\n") {
		t.Errorf("the restored database has\n%s", text)
	}
}

// archivedOnce checks that the archive has each revision of the ConfigMap "kept" and its operation, and no row twice.
func archivedOnce(t *testing.T, versions []archivedVersion, revisions []string) {
	t.Helper()
	var kept []string
	seen := map[int]bool{}
	for _, v := range versions {
		if seen[v.ID] {
			t.Errorf("revision %d is there twice", v.ID)
		}
		seen[v.ID] = true
		if v.Name == "kept" {
			kept = append(kept, fmt.Sprint(v.ID))
			if v.Operation == "" || v.WrittenAt == 0 || v.User != "kubernetes-admin" || !json.Valid([]byte(v.Value)) {
				t.Errorf("a line has %+v", v)
			}
		}
	}
	if !slices.Equal(kept, revisions) {
		t.Errorf("of revisions\n%v\nthe archive has\n%v", revisions, kept)
	}
}

// TestArchiveOfWhatIsThere adds an archive to a server that has run without one: existing versions are archived, too.
func TestArchiveOfWhatIsThere(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	c := client(t, s.Kubeconfig)
	revisions := []string{setData(t, c, "kept", "first"), setData(t, c, "kept", "second")}
	s.Stop(t)
	place := t.TempDir()
	s = serveAgain(t, s, []string{"--archive", place, "--retention", "1s", "--history=0"})
	revisions = append(revisions, setData(t, c, "kept", "third"))
	awaitForgotten(t, s, revisions[1])
	if got := revisionsOf(t, "configmaps", "kept", "--archive", place, "--data-dir", s.DataDir); !slices.Equal(got, revisions) {
		t.Errorf("of revisions %v the history has %v", revisions, got)
	}
	s.Stop(t)
}

// breakPlace puts a file in place of the archive, and returns a function that puts the archive back.
func breakPlace(t *testing.T, place string) (mend func()) {
	t.Helper()
	harness.Must(t, os.Rename(place, place+".away"))
	harness.Must(t, os.WriteFile(place, nil, 0o600))
	return func() {
		harness.Must(t, os.Remove(place))
		harness.Must(t, os.Rename(place+".away", place))
	}
}

// TestArchiveFails takes the archive's folder away: the API keeps working, versions that are not archived stay, and are removed
// when the archive is back.
func TestArchiveFails(t *testing.T) {
	t.Parallel()
	place := filepath.Join(t.TempDir(), "archive")
	s := serve(t, []string{"--archive", place, "--retention", "1s", "--history=0"})
	c, database := client(t, s.Kubeconfig), []string{"--data-dir", s.DataDir}
	awaitBackup(t, place, setData(t, c, "kept", "before"))
	mend := breakPlace(t, place)
	var revisions []string
	for i := range 5 {
		revisions = append(revisions, setData(t, c, "kept", fmt.Sprint("value-", i)))
	}
	harness.Retry(t, "the metrics report that the archive fails, and what waits", func() error {
		found := sqube.StoreMetrics(t, c)
		if found["archive_failing_seconds"] < 1 || found["compaction_lag_seconds"] < 1 {
			return fmt.Errorf("the metrics are %v", found)
		}
		return nil
	})
	showsVersion(t, "kept", revisions[0], "value-0", database)
	s.Logged(t, "writing the archive failed, so versions stay in the database", 1)
	mend()
	awaitForgotten(t, s, revisions[0])
	harness.Retry(t, "the metrics are back to normal", func() error {
		if found := sqube.StoreMetrics(t, c); found["archive_failing_seconds"] != 0 || found["archived_revision"] < float64(number(t, revisions[4])) {
			return fmt.Errorf("the metrics are %v", found)
		}
		return nil
	})
	showsVersion(t, "kept", revisions[0], "value-0", append([]string{"--archive", place}, database...))
	s.Logged(t, "the archive works again", 1)
	s.Stop(t)
}

// TestArchiveFailsForLong lets more versions wait for a broken archive than --retention-rows allows.
func TestArchiveFailsForLong(t *testing.T) {
	t.Parallel()
	place := filepath.Join(t.TempDir(), "archive")
	s := serve(t, []string{"--archive", place, "--retention", "1h", "--retention-rows", "100", "--history=0", "--compact-interval", "100ms"})
	c := client(t, s.Kubeconfig)
	database := []string{"--data-dir", s.DataDir}
	first := setData(t, c, "kept", "before")
	awaitBackup(t, place, first)
	mend := breakPlace(t, place)
	missed := setData(t, c, "kept", "missed")
	for i := range 150 {
		setData(t, c, "kept", fmt.Sprint(i))
	}
	awaitForgotten(t, s, missed)
	if text := s.Log(t); !strings.Contains(text, "removing versions that are not archived, since there are more than --retention-rows") {
		t.Errorf("the log is\n%s", text)
	}
	mend()
	last := setData(t, c, "kept", "last")
	awaitBackup(t, place, last)
	with := append([]string{"--archive", place}, database...)
	showsVersion(t, "kept", first, "before", with)
	refuses(t, "does not hold revision "+missed, append([]string{"show", "configmaps", "kept", "--at", missed}, with...))
	text := succeeds(t, append([]string{"history", "configmaps", "kept"}, with...))
	if !strings.Contains(text, "(the previous version is no longer kept)") || !strings.Contains(text, "\n"+first+" ") || !strings.Contains(text, "\n"+last+" ") {
		t.Errorf("the history is\n%s", text)
	}
	s.Stop(t)
}

// TestArchiveOfReplicas runs two servers with one database and one archive, and kills the one that writes the archive.
func TestArchiveOfReplicas(t *testing.T) {
	t.Parallel()
	place := t.TempDir()
	database := []string{"--datastore", harness.Postgres(t)}
	args := append([]string{"--archive", place, "--retention", "1s", "--history=0", "--pki-encryption-key-file", sqube.KeyFile(t)}, database...)
	servers := []*sqube.Server{serve(t, args), serve(t, args)}
	var clients []kubernetes.Interface
	for _, s := range servers {
		clients = append(clients, client(t, s.Kubeconfig))
	}
	servers[1].Logged(t, "another server writes the archive", 1)
	var revisions []string
	for i := range 40 {
		if i == 20 {
			awaitForgotten(t, servers[0], revisions[10])
			servers[0].Kill(t)
			clients[0] = clients[1]
		}
		revisions = append(revisions, setData(t, clients[i%2], "kept", fmt.Sprint("value-", i)))
	}
	awaitForgotten(t, servers[1], revisions[len(revisions)-2])
	if got := revisionsOf(t, append([]string{"configmaps", "kept", "--archive", place}, database...)...); !slices.Equal(got, revisions) {
		t.Errorf("of revisions\n%v\nthe history has\n%v", revisions, got)
	}
	servers[1].Stop(t)
	versions, _ := archivedVersions(t, place, "configmaps")
	archivedOnce(t, versions, revisions)
}

// TestArchiveIsRefused passes places that can't be an archive.
func TestArchiveIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	refuses(t, "--archive: a place must be a folder or s3://BUCKET/PREFIX", []string{"serve", "--data-dir", dir, "--archive", "gs://bucket"})
	refuses(t, "--archive: a place must be a folder or s3://BUCKET/PREFIX", []string{"history", "configmaps", "kept", "--data-dir", dir, "--archive", "gs://bucket"})
}
