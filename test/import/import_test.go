package imports

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/harness"
)

// encryption are the flags for decrypting what the recorded kube-apiservers have encrypted.
var encryption = []string{"--encryption-provider-config", "testdata/encryption.yaml"}

// left is what the report must have about everything that is not imported, from any source, as regular expressions.
var left = []string{
	`configmaps +- +1 +default/broken: its value can't be stored: `,
	`configmaps +- +1 +default/misplaced: its value can't be stored: the value is a default/plain`,
	`secrets +- +1 +default/moved: it is encrypted, and --encryption-provider-config can't decrypt it: `,
	`podsecuritypolicy +- +1 +restricted: sqube does not serve this resource`,
	`things.gone.example.com +- +1 +default/a: it has no CustomResourceDefinition`,
	`masterleases +- +1 +10.0.0.1: it says that one of the old API servers is alive`,
	`leases.coordination.k8s.io +- +1 +kube-system/apiserver-\w+: it is the identity of one of the old API servers`,
	`peerserverleases +- +1 +apiserver-\w+: it says that one of the old API servers is alive`,
	`ranges +- +\d+ +\S.*: sqube recomputes which addresses and ports Services use`,
}

func TestEtcdSnapshot(t *testing.T) {
	t.Parallel()
	file := recording(t, "etcd")
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		t.Parallel()
		imported(t, engine, "etcd", "--from", "etcd", file)
	})
}

func TestKineSQLite(t *testing.T) {
	t.Parallel()
	imported(t, harness.Engine{Name: "sqlite", Datastore: harness.SQLite(t)}, "kine-sqlite", "--from", "kine-sqlite", recording(t, "kine-sqlite"))
}

func TestKinePostgres(t *testing.T) {
	t.Parallel()
	imported(t, harness.Engine{Name: "postgres", Datastore: harness.Postgres(t)}, "kine-postgres", "--from", "kine-postgres", kineDatabase(t))
}

// imported imports a recording and checks the database and what is served from it.
func imported(t *testing.T, engine harness.Engine, name string, source ...string) {
	arguments := append(append([]string{"import", "--datastore", engine.Datastore}, source...), encryption...)
	dry := succeeds(t, append(arguments, "--dry-run")...)
	report := succeeds(t, arguments...)
	for _, form := range left {
		if !regexp.MustCompile(form).MatchString(report) {
			t.Errorf("no %s in the report:\n%s", form, report)
		}
	}
	if !strings.Contains(report, "--service-cluster-ip-range 10.0.0.0/16, as before") {
		t.Errorf("the report does not have the range of Services:\n%s", report)
	}
	if table(dry) != table(report) {
		t.Errorf("the dry run printed\n%sand the import\n%s", dry, report)
	}
	refuses(t, "is not empty: give another --datastore", arguments...)
	refuses(t, "is not empty: give another --datastore", append(arguments, "--dry-run")...)
	check := append([]string{"check", "--datastore", engine.Datastore}, encryption...)
	if text := succeeds(t, check...); !strings.Contains(text, "nothing wrong") {
		t.Errorf("sqube check: %s", text)
	}
	expires(t, engine)
	serves(t, engine, name)
}

// table is the part of the report that a dry run has too.
func table(report string) string {
	before, _, _ := strings.Cut(report, "\n\n")
	return before
}

// expires checks that events, and nothing else, have a time to live: kube-apiserver gives them an hour.
func expires(t *testing.T, engine harness.Engine) {
	t.Helper()
	var events, expiring, others int
	err := harness.OpenDatabase(t, engine).QueryRow(`SELECT count(*) FILTER (WHERE resource = 'events'),
count(*) FILTER (WHERE resource = 'events' AND expires_at - written_at BETWEEN 3000000 AND 3700000),
count(*) FILTER (WHERE resource <> 'events' AND expires_at IS NOT NULL) FROM log`).Scan(&events, &expiring, &others)
	if err != nil || events < 2 || expiring != events || others != 0 {
		t.Errorf("%d of %d events and %d other objects expire: %v", expiring, events, others, err)
	}
}

// TestDryRunWritesNothing also tests the report without the encryption keys.
func TestDryRunWritesNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sqube.db")
	report := succeeds(t, "import", "--datastore", "sqlite://"+path, "--from", "kine-sqlite", recording(t, "kine-sqlite"), "--dry-run")
	form := `secrets +- +3 +\S+/\w+, \S+/\w+, \S+/\w+: it is encrypted: give the file that its server has with --encryption-provider-config`
	if !regexp.MustCompile(form).MatchString(report) {
		t.Errorf("no %s in\n%s", form, report)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the dry run created %s: %v", path, err)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	snapshot := recording(t, "etcd")
	whole, err := os.ReadFile(snapshot)
	harness.Must(t, err)
	damaged, cut, raw := filepath.Join(t.TempDir(), "damaged"), filepath.Join(t.TempDir(), "cut"), filepath.Join(t.TempDir(), "raw")
	flipped := append([]byte(nil), whole...)
	flipped[len(flipped)/2] ^= 1
	for path, data := range map[string][]byte{damaged: flipped, cut: whole[:len(whole)/2+100], raw: whole[:len(whole)-32]} {
		harness.Must(t, os.WriteFile(path, data, 0o600))
	}
	for want, arguments := range map[string][]string{
		"--from must be kine-sqlite, kine-postgres or etcd": {"--from", "zookeeper", snapshot},
		"the checksum at its end is wrong":                  {"--from", "etcd", damaged},
		"has no checksum at its end: it was truncated":      {"--from", "etcd", cut},
		"--skip-hash-check":                                 {"--from", "etcd", raw},
		"no such file":                                      {"--from", "kine-sqlite", filepath.Join(t.TempDir(), "none.db")},
		"reading the table kine: ":                          {"--from", "kine-sqlite", emptyFile(t)},
		"begins with /k8s/: give the --etcd-prefix":         {"--from", "etcd", snapshot, "--etcd-prefix", "/k8s"},
		"connection refused":                                {"--from", "etcd", "http://127.0.0.1:1"},
		"failed to connect":                                 {"--from", "kine-postgres", "postgres://u:secret@127.0.0.1:1/kine"},
		"--cacert, --cert, --key: ":                         {"--from", "etcd", "https://127.0.0.1:1", "--cacert", "none"},
	} {
		refuses(t, want, append([]string{"import", "--datastore", harness.SQLite(t)}, arguments...)...)
	}
	succeeds(t, "import", "--datastore", harness.SQLite(t), "--from", "etcd", raw, "--skip-hash-check", "--dry-run")
}

// TestDamagedSnapshot imports what is left of a snapshot. The database stays empty.
func TestDamagedSnapshot(t *testing.T) {
	t.Parallel()
	whole, cut := recorded(t, "etcd.state"), filepath.Join(t.TempDir(), "cut")
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		for _, part := range []int{2, 3, 8} {
			harness.Must(t, os.WriteFile(cut, whole[:len(whole)/part], 0o600))
			refuses(t, "the snapshot is damaged: ", "import", "--datastore", engine.Datastore, "--from", "etcd", cut, "--skip-hash-check")
		}
		succeeds(t, append([]string{"import", "--datastore", engine.Datastore, "--from", "etcd", recording(t, "etcd")}, encryption...)...)
	})
}

func emptyFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "empty")
	harness.Must(t, os.WriteFile(path, nil, 0o600))
	return path
}

// succeeds runs sqube, which must succeed, and returns its standard output.
func succeeds(t *testing.T, arguments ...string) string {
	t.Helper()
	stdout, stderr, err := run(t, arguments)
	if err != nil || stderr != "" {
		t.Fatalf("sqube %s: %v\n%s%s", strings.Join(arguments, " "), err, stdout, stderr)
	}
	return stdout
}

// refuses runs sqube and expects it to fail with a one-line error.
func refuses(t *testing.T, want string, arguments ...string) {
	t.Helper()
	stdout, stderr, err := run(t, arguments)
	if err == nil || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "sqube: ") || !strings.Contains(stderr, want) {
		t.Errorf("sqube %s: %v, want %q\n%s%s", strings.Join(arguments, " "), err, want, stdout, stderr)
	}
}
