package serve

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/faults"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestDisk makes the disk of the database fail: writes are told to retry, reads and watches keep working, nothing that could be
// lost is acknowledged, and the server recovers with the disk.
func TestDisk(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		disk := faults.NewDisk(t)
		s := serve(t, []string{"--datastore-timeout", "2s"}, disk.Run)
		w := newWriter(t, s)
		t.Run("is full", func(t *testing.T) { w.fullDisk(t, disk) })
		t.Run("syncs slowly", func(t *testing.T) { w.slowDisk(t, disk) })
		t.Run("fails to sync", func(t *testing.T) {
			w.failingDisk(t, disk)
			w.creates(t, "synced")
			w.absent(t, "unsynced")
		})
		t.Run("failed before a crash", func(t *testing.T) {
			disk.FailSync(true)
			w.refused(t, "before-crash")
			s.Kill(t)
			disk.FailSync(false)
			again := serveAgain(t, s, nil, disk.Run)
			w.kept(t)
			settle(t, again)
			again.Stop(t)
		})
		checked(t, "sqlite://"+s.DataDir+"/sqube.db")
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		disk := faults.NewDisk(t)
		postgres := harness.NewFaultyPostgresServer(t, disk.Run)
		dsn := postgres.Database(t)
		s := serve(t, []string{"--datastore-timeout", "2s", "--datastore", dsn})
		w := newWriter(t, s)
		t.Run("is full", func(t *testing.T) { w.fullDisk(t, disk) })
		t.Run("is full at a first start", func(t *testing.T) {
			empty := postgres.Database(t)
			disk.Full(true)
			refuses(t, "No space left on device", serveArgs(t, t.TempDir(), "--datastore", empty))
			disk.Full(false)
		})
		t.Run("syncs slowly", func(t *testing.T) { w.slowDisk(t, disk) })
		t.Run("fails to sync", func(t *testing.T) {
			w.failingDisk(t, disk)
			// It closes its sessions after such a failure, and exits if recovery fails as well.
			harness.Must(t, errors.Join(postgres.Kill(), postgres.Start()))
			w.creates(t, "restarted")
		})
		w.kept(t)
		s.Stop(t)
		checked(t, dsn)
	})
}

func checked(t *testing.T, datastore string) {
	t.Helper()
	if stdout, stderr, code := sqube.Run(t, []string{"check", "--datastore", datastore}); code != 0 {
		t.Errorf("the check of the database exits with code %d\n%s%s", code, stdout, stderr)
	}
}

// writer creates ConfigMaps, and records which were acknowledged.
type writer struct {
	*sqube.Server
	http   *http.Client // which does not retry
	url    string
	events *json.Decoder
	mu     sync.Mutex
	names  []string
}

func newWriter(t *testing.T, s *sqube.Server) *writer {
	t.Helper()
	w := &writer{Server: s, http: httpClient(t, s.Kubeconfig, "HTTP/2.0"), url: s.URL + "/api/v1/namespaces/default/configmaps"}
	watch, err := w.http.Get(w.url + "?watch=true")
	harness.Must(t, err)
	t.Cleanup(func() { watch.Body.Close() })
	w.events = json.NewDecoder(bufio.NewReader(watch.Body))
	w.creates(t, "before")
	return w
}

// create tries once. If that is rejected, it returns an error, and checks the response with isUnavailable.
func (w *writer) create(t *testing.T, name string) error {
	t.Helper()
	return w.send(t.Context(), t, name)
}

// send is create with a context that may have a trace.
func (w *writer) send(ctx context.Context, t *testing.T, name string) error {
	t.Helper()
	random := make([]byte, 50_000) // incompressible
	rand.Read(random)
	body := fmt.Sprintf(`{"metadata":{"name":%q},"data":{"a":%q}}`, name, hex.EncodeToString(random))
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, strings.NewReader(body))
	harness.Must(t, err)
	request.Header.Set("Content-Type", "application/json")
	response, err := w.http.Do(request)
	if err != nil {
		t.Error(err)
		return err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusCreated {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.names = append(w.names, name)
		return nil
	}
	var status metav1.Status
	if err := errors.Join(json.NewDecoder(response.Body).Decode(&status), isUnavailable(response, &status)); err != nil {
		t.Errorf("create %s: %v\n%+v", name, err, status)
	}
	return errors.New(status.Message)
}

// creates is written, and waits for the event.
func (w *writer) creates(t *testing.T, name string) {
	t.Helper()
	await(t, w.events, w.written(t, name))
}

// written tries until an object is created, and returns its name. Each has another one, since those that failed may still take
// effect.
func (w *writer) written(t *testing.T, prefix string) (name string) {
	t.Helper()
	tries := 0
	harness.Retry(t, "something can be written", func() error {
		tries++
		name = fmt.Sprint(prefix, "-", tries)
		return w.create(t, name)
	})
	return name
}

// await reads events until the creation of the object. An event that ends the watch fails the test.
func await(t *testing.T, events *json.Decoder, name string) {
	t.Helper()
	for {
		var event struct {
			Type   string
			Object struct {
				metav1.PartialObjectMetadata
				Message string // of a Status
			}
		}
		if err := events.Decode(&event); err != nil {
			t.Fatalf("the watch ends before the event of %s: %v", name, err)
		}
		switch {
		case event.Type == "ERROR" || event.Type == "DELETED":
			t.Fatalf("the watch sends %s of %s before the event of %s: %s", event.Type, event.Object.Name, name, event.Object.Message)
		case event.Object.Name == "lost":
			t.Fatal("a failed write took effect")
		case event.Object.Name == name:
			return
		}
	}
}

func (w *writer) refused(t *testing.T, name string) {
	t.Helper()
	if err := w.create(t, name); err == nil {
		t.Errorf("%s was created", name)
	}
}

func (w *writer) get(t *testing.T, path string) int {
	t.Helper()
	response, err := w.http.Get(w.url + path)
	harness.Must(t, err)
	response.Body.Close()
	return response.StatusCode
}

// kept checks that everything acknowledged exists.
func (w *writer) kept(t *testing.T) {
	t.Helper()
	for _, name := range w.names {
		if code := w.get(t, "/"+name); code != http.StatusOK {
			t.Errorf("%s was acknowledged, but a get returns %d", name, code)
		}
	}
}

func (w *writer) absent(t *testing.T, name string) {
	t.Helper()
	if code := w.get(t, "/"+name); code != http.StatusNotFound {
		t.Errorf("%s was rejected, but a get returns %d", name, code)
	}
}

// serves checks that reads work.
func (w *writer) serves(t *testing.T) {
	t.Helper()
	w.kept(t)
	for _, path := range []string{"", "?limit=1"} {
		if code := w.get(t, path); code != http.StatusOK {
			t.Errorf("a list returns %d", code)
		}
	}
	if code, text := fetch(t, insecure, http.MethodGet, w.URL+"/readyz", ""); code != http.StatusOK {
		t.Errorf("/readyz returns %d\n%s", code, text)
	}
}

func (w *writer) fullDisk(t *testing.T, disk *faults.Disk) {
	const tries = 20
	disk.Full(true)
	for i, refused := 0, 0; refused < tries; i++ {
		name := fmt.Sprint("full-", i) // some may fit into space that the database already has
		err := w.create(t, name)
		switch {
		case err == nil && i < 1000:
			await(t, w.events, name)
			refused = 0
		case err != nil && strings.Contains(err.Error(), "did not answer in time"): // on a busy machine
		case err == nil || !strings.Contains(err.Error(), "the datastore's disk is full"):
			t.Fatalf("%s: %v", name, err)
		default:
			w.absent(t, name)
			refused++
		}
	}
	w.serves(t)
	disk.Full(false)
	w.creates(t, "room")
	harness.Retry(t, "the log reports the failure, but not each write", func() error {
		log := w.Log(t)
		for _, line := range []string{"writing to the database failed; clients will retry", "writing to the database works again"} {
			if n := strings.Count(log, line); n == 0 || n > tries/2 {
				return fmt.Errorf("%q occurs %d times", line, n)
			}
		}
		return nil
	})
}

func (w *writer) slowDisk(t *testing.T, disk *faults.Disk) {
	disk.SlowSync(time.Hour)
	var asking sync.WaitGroup
	for i := range 20 {
		asking.Go(func() { w.refused(t, fmt.Sprint("slow-", i)) })
	}
	asking.Wait()
	w.serves(t)
	disk.SlowSync(0)
	w.creates(t, "quick")
}

func (w *writer) failingDisk(t *testing.T, disk *faults.Disk) {
	disk.FailSync(true)
	w.refused(t, "unsynced")
	disk.FailSync(false)
}

// TestQuota uses up the quota of the database's user: like on a full disk, objects can still be deleted, also in a transaction. One that has no
// room writes nothing, and says so.
func TestQuota(t *testing.T) {
	t.Parallel()
	disk := faults.NewDisk(t)
	disk.Quota()
	s := serve(t, nil, disk.Run)
	w := newWriter(t, s)
	w.fullDisk(t, disk)
	w.creates(t, "more")
	disk.Full(true)
	for i := 0; w.create(t, fmt.Sprint("filler-", i)) == nil; i++ {
	}
	harness.Must(t, client(t, s.Kubeconfig).CoreV1().ConfigMaps("default").Delete(t.Context(), w.names[0], metav1.DeleteOptions{}))
	w.absent(t, w.names[0])
	c := client(t, s.Kubeconfig)
	large := twins{"large"}
	if _, err := large.put(t.Context(), c, "large", strings.Repeat("x", 1_000_000)); err == nil || !strings.Contains(err.Error(), "nothing was written: the datastore's disk is full") {
		t.Errorf("a transaction that has no room: %v", err)
	}
	for _, name := range large.names() {
		w.absent(t, name)
	}
	gone := w.names[1:3]
	var deletions []string
	for _, name := range gone {
		deletions = append(deletions, fmt.Sprintf(`{"verb":"delete","target":{"apiVersion":"v1","kind":"ConfigMap","namespace":"default","name":%q}}`, name))
	}
	harness.Must(t, transact(t.Context(), c, "gone", deletions...))
	for _, name := range gone {
		w.absent(t, name)
	}
}

// TestDiskFullAtStart starts a server on a full disk: with the space that an earlier one set aside, without it, and with an
// empty folder.
func TestDiskFullAtStart(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	settle(t, s)
	w := newWriter(t, s)
	s.Stop(t)
	disk := faults.NewDisk(t)
	disk.Full(true)

	again := serveAgain(t, s, nil, disk.Run)
	w.kept(t)
	w.refused(t, "unwritten")
	harness.Must(t, client(t, s.Kubeconfig).CoreV1().ConfigMaps("default").Delete(t.Context(), w.names[0], metav1.DeleteOptions{}))
	w.absent(t, w.names[0])
	again.Stop(t)

	path := filepath.Join(s.DataDir, "sqube.db")
	harness.Must(t, os.Remove(path+"-reserve"))
	disk.Full(true) // also without the room that the last server left
	before := readFile(t, path)
	refuses(t, "see whether its disk is full (df) or fails (dmesg)", serveArgs(t, s.DataDir), disk.Run)
	if !bytes.Equal(readFile(t, path), before) {
		t.Error("the database was changed")
	}
	empty := t.TempDir()
	refuses(t, "make room on its disk", serveArgs(t, empty), disk.Run)
	disk.Full(false)
	for _, dataDir := range []string{s.DataDir, empty} {
		serveIn(t, dataDir, nil, disk.Run)
	}
}

// isUnavailable returns an error unless a response is the Status of a temporarily unavailable server.
func isUnavailable(response *http.Response, status *metav1.Status) error {
	reasons := map[int]metav1.StatusReason{http.StatusServiceUnavailable: metav1.StatusReasonServiceUnavailable, http.StatusGatewayTimeout: metav1.StatusReasonTimeout}
	reason, known := reasons[response.StatusCode]
	switch {
	case !known || status.Kind != "Status" || status.Code != int32(response.StatusCode) || status.Reason != reason:
		return fmt.Errorf("got %s, want a Status of 503 or 504", response.Status)
	case response.Header.Get("Retry-After") == "" || status.Details == nil || status.Details.RetryAfterSeconds == 0:
		return errors.New("want a Retry-After")
	case strings.Contains(status.Message, "\n"):
		return errors.New("want a one-line message")
	}
	return nil
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	harness.Must(t, err)
	return text
}
