package serve

import (
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sqube/sqube/dialect/sqlite"
	"github.com/sqube/sqube/test/faults"
	"github.com/sqube/sqube/test/harness"
)

// acknowledged marks a write that succeeded.
type acknowledged struct {
	name    string
	version int64
}

// TestPowerCut records the disk operations of servers, and cuts the power after each of them: the database can be opened and is
// consistent, nothing acknowledged is missing, and transactions are there as a whole or not at all.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	folder, err := filepath.EvalSymlinks(t.TempDir())
	harness.Must(t, err)
	recorder := faults.NewRecorder(t, folder, func(name string) bool {
		return name == "sqube.db" || name == "sqube.db-wal" || name == "sqube.db-journal"
	})
	recordServers(t, folder, recorder)
	steps, err := recorder.Steps()
	harness.Must(t, err)

	cut := faults.NewPowerCut()
	newest := map[string]int64{}
	random := rand.New(rand.NewPCG(1, 2))
	cuts, sinceCheck := 0, 0
	check := func(before int, random *rand.Rand) {
		cuts++
		if err := afterPowerCut(t, cut, newest, random); err != nil {
			var last []string
			for i := max(0, before-10); i < before; i++ {
				last = append(last, steps[i].String())
			}
			t.Fatalf("power cut after %d of %d steps (anything of what was not synced is there: %v): %v; the last ones were\n%s", before, len(steps), random != nil, err, strings.Join(last, "\n"))
		}
	}
	for i := range steps {
		step := &steps[i]
		if step.IsSync() {
			check(i, nil) // as after each step since the last sync, except that more has been acknowledged
			check(i, random)
			sinceCheck = 0
		} else if sinceCheck++; sinceCheck == 400 { // in the middle of a checkpoint
			check(i, random)
			sinceCheck = 0
		}
		cut.Do(step)
		if mark, ok := step.Mark.(acknowledged); ok {
			newest[mark.name] = max(newest[mark.name], mark.version)
		}
	}
	check(len(steps), nil)
	t.Logf("%d steps, %d power cuts", len(steps), cuts)
}

// recordServers makes servers start, write, compact, checkpoint, stop and be killed.
func recordServers(t *testing.T, folder string, recorder *faults.Recorder) {
	t.Helper()
	for round, end := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, syscall.SIGTERM} {
		s := serveIn(t, folder, []string{"--retention", "1s"}, recorder.Run)
		c := client(t, s.Kubeconfig)
		var writers sync.WaitGroup
		for w := range 3 {
			writers.Go(func() {
				for i := range 6 {
					writeLarge(t, c, recorder, fmt.Sprintf("large-%d-%d", w, i%4), round*100+i)
				}
			})
		}
		writers.Go(func() {
			for i := range 6 {
				writePair(t, c, recorder, round*100+i)
			}
		})
		writers.Wait()
		harness.Must(t, s.Signal(end))
		s.Code(t)
	}
}

// writePair gives two objects the same value, in a transaction.
func writePair(t *testing.T, c kubernetes.Interface, recorder *faults.Recorder, value int) {
	p := twins{"pair"}
	versions, err := p.put(t.Context(), c, fmt.Sprint("pair-", value), strings.Repeat(fmt.Sprint(value), 10_000))
	if err != nil || len(versions) != 2 {
		t.Errorf("%v, %v", versions, err)
		return
	}
	for i, name := range p.names() {
		recorder.Mark(acknowledged{name, versions[i]})
	}
}

// writeLarge creates or updates an object with many pages, which soon fills the write-ahead log.
func writeLarge(t *testing.T, c kubernetes.Interface, recorder *faults.Recorder, name string, value int) {
	maps := c.CoreV1().ConfigMaps("default")
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"value": strings.Repeat(fmt.Sprint(value), 40_000)}}
	made, err := maps.Update(t.Context(), object, metav1.UpdateOptions{})
	if err != nil {
		made, err = maps.Create(t.Context(), object, metav1.CreateOptions{})
	}
	if err != nil {
		t.Error(err)
		return
	}
	version, err := strconv.ParseInt(made.ResourceVersion, 10, 64)
	if err != nil {
		t.Error(err)
	}
	recorder.Mark(acknowledged{name, version})
}

// afterPowerCut opens what a power cut left, like a server at its start.
func afterPowerCut(t *testing.T, cut *faults.PowerCut, newest map[string]int64, random *rand.Rand) (err error) {
	t.Helper()
	folder, err := os.MkdirTemp(t.TempDir(), "")
	harness.Must(t, err)
	defer os.RemoveAll(folder)
	harness.Must(t, cut.Write(folder, random))
	path := filepath.Join(folder, "sqube.db")
	engine, err := sqlite.OpenWith(t.Context(), path, sqlite.Options{NoSync: true})
	if err == nil {
		err = engine.Close()
	}
	if err == nil {
		err = sqlite.Verify(t.Context(), path)
	}
	if err != nil {
		return err
	}
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro")
	harness.Must(t, err)
	defer db.Close()
	rows, err := db.Query("SELECT name, id FROM log WHERE resource = 'configmaps' AND replaced_by IS NULL")
	harness.Must(t, err)
	defer rows.Close()
	found := map[string]int64{}
	for rows.Next() {
		var name string
		var id int64
		harness.Must(t, rows.Scan(&name, &id))
		found[name] = id
	}
	err = rows.Err()
	var pair, values int
	harness.Must(t, db.QueryRow("SELECT count(*), count(DISTINCT value ->> '$.data.value') FROM log WHERE name LIKE 'pair-_' AND replaced_by IS NULL").Scan(&pair, &values))
	if pair == 1 || values > 1 {
		err = errors.Join(err, fmt.Errorf("of a transaction that writes a pair, there is a part: %d objects with %d values", pair, values))
	}
	for name, version := range newest {
		if found[name] < version {
			err = errors.Join(err, fmt.Errorf("%s was acknowledged with version %d, but has %d", name, version, found[name]))
		}
	}
	return err
}
