package serve

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/sqube/sqube/test/faults"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

const day = 24 * time.Hour

// TestClockAtStart starts servers on machines with a wrong clock.
func TestClockAtStart(t *testing.T) {
	t.Parallel()
	off := func(by time.Duration) option {
		return func(cmd *exec.Cmd) { faults.ClockOff(t, cmd, by) }
	}
	dataDir := t.TempDir() + "/data"
	refuses(t, "this machine's clock says 1970-", serveArgs(t, dataDir), off(-time.Since(time.Unix(1000, 0))))
	if _, err := os.Stat(dataDir); err == nil {
		t.Error("a data directory was created")
	}
	dataDir = left(t, leftStopped)
	refusesAfterWarnings(t, "check this machine's clock", serveArgs(t, dataDir), off(-day)) // the store may have warned
	refuses(t, "this machine's clock says 1970-", serveArgs(t, dataDir), off(-time.Since(time.Unix(1000, 0))))
	serveIn(t, dataDir, nil)
}

// TestClockSteps steps the clock of servers forward by most of a year, and back: nothing is compacted early, whatever is due is
// compacted, and requests and watches keep working. Tests of the store step its clock on each engine.
func TestClockSteps(t *testing.T) {
	t.Parallel()
	t.Run("keeps", func(t *testing.T) {
		t.Parallel()
		c := newClocked(t, "1h")
		for _, off := range []time.Duration{300 * day, 0} {
			known := c.metrics(t)["superseded_rows"]
			c.step(t, off)
			harness.Retry(t, "a compaction has run", func() error {
				if found := c.metrics(t); found["superseded_rows"] < known+updates || found["removed_rows_total"] > 0 {
					return fmt.Errorf("there were %v versions, and the metrics are %v", known, found)
				}
				return nil
			})
			harness.Must(t, c.list(t, c.first))
		}
	})
	t.Run("forgets", func(t *testing.T) {
		t.Parallel()
		c := newClocked(t, "1s")
		for _, off := range []time.Duration{300 * day, 0} {
			version := c.step(t, off)
			harness.Retry(t, "replaced versions are compacted", func() error {
				if err := c.list(t, version); !apierrors.IsResourceExpired(err) {
					return fmt.Errorf("a list at revision %s: %v", version, err)
				}
				return nil
			})
		}
	})
}

// TestMomentsWhileClocksAreOff steps the clock of a server, and restores moments in between by the correct time, from the database and
// from a backup. What is restored is never newer than the moment, and older only for as long as the clock was ahead.
func TestMomentsWhileClocksAreOff(t *testing.T) {
	t.Parallel()
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		t.Parallel()
		database := []string{"--datastore", engine.Datastore}
		s := serve(t, append([]string{"--retention", "1h"}, database...))
		c := client(t, s.Kubeconfig)
		place := t.TempDir()
		follower := sqube.Command(t, append([]string{"backup", "--follow", place, "--sync-interval", "10ms"}, database...))
		awaitBackup(t, place, setData(t, c, "stepped", "first"))
		passes := func() { time.Sleep(20 * time.Millisecond) } // by the correct clock
		var moments []time.Time
		var values []string
		version := ""
		for _, step := range []struct {
			off    time.Duration
			unseen bool // its writes seem to be from the future
		}{{0, false}, {-10 * time.Minute, false}, {0, false}, {-50 * 365 * day, false}, {0, false}, {300 * day, true}, {0, false}} {
			harness.Must(t, faults.StepClock(s.Pid(), step.off))
			for i := range 2 {
				value := fmt.Sprintf("write %d at %s", i, step.off)
				version = setData(t, c, "stepped", value)
				if step.unseen {
					value = values[len(values)-1]
				}
				passes()
				moments, values = append(moments, time.Now()), append(values, value)
				passes()
			}
		}
		awaitBackup(t, place, version)
		follower.Stop(t)
		for i, moment := range moments {
			if engine.Name == "postgres" && i%4 > 0 { // what time a row has does not depend on the engine
				continue
			}
			at := moment.UTC().Format(time.RFC3339Nano)
			from, show := "the database", append([]string{"show", "configmaps", "stepped", "--at", at}, database...)
			if i%3 > 0 { // restored
				from = []string{"", engine.Datastore, place}[i%3]
				then := []string{"--datastore", "sqlite://" + filepath.Join(t.TempDir(), "then.db")}
				text := succeeds(t, append([]string{"restore", from, "--to-time", at}, then...))
				if want := ", at " + moment.UTC().Format(time.RFC3339); !strings.Contains(text, want) {
					t.Errorf("it prints %q without %q", text, want)
				}
				show = append([]string{"show", "configmaps", "stepped"}, then...)
			}
			if text := succeeds(t, show); !strings.Contains(text, "value: "+values[i]+"\n") {
				t.Errorf("at %s, from %s, want %q, got\n%s", at, from, values[i], text)
			}
		}
		s.Stop(t)
		if text := s.Log(t); strings.Count(text, "clock is behind the time of the log") != 1 || strings.Count(text, "times in the log go back") != 1 {
			t.Errorf("it logs\n%s", text)
		}
	})
}

// clocked is a server with a clock that steps.
type clocked struct {
	*sqube.Server
	kubernetes.Interface
	maps   corev1client.ConfigMapInterface
	events *json.Decoder
	object *corev1.ConfigMap
	first  string // its first version
}

func newClocked(t *testing.T, retention string) *clocked {
	t.Helper()
	s := serve(t, []string{"--retention", retention, "--history=0", "--compact-interval", "100ms"})
	c := &clocked{Server: s, Interface: client(t, s.Kubeconfig)}
	c.maps = c.CoreV1().ConfigMaps("default")
	// From the newest version on: a given one might be compacted before the watch begins.
	watch, err := httpClient(t, s.Kubeconfig, "HTTP/2.0").Get(s.URL + "/api/v1/namespaces/default/configmaps?watch=true")
	harness.Must(t, err)
	t.Cleanup(func() { watch.Body.Close() })
	c.events = json.NewDecoder(bufio.NewReader(watch.Body))
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "clocked"}}
	c.object, err = c.maps.Create(t.Context(), object, metav1.CreateOptions{})
	harness.Must(t, err)
	c.first = c.object.ResourceVersion
	return c
}

// updates is how many versions a step creates: more than a server creates by itself.
const updates = 50

// step moves the clock by off, updates the object, waits for the event of the last update, and returns the version before.
func (c *clocked) step(t *testing.T, off time.Duration) (before string) {
	t.Helper()
	harness.Must(t, faults.StepClock(c.Pid(), off))
	for i := range updates {
		before = c.object.ResourceVersion
		c.object.Data = map[string]string{"clock": fmt.Sprint(off, i)}
		var err error
		c.object, err = c.maps.Update(t.Context(), c.object, metav1.UpdateOptions{})
		harness.Must(t, err)
	}
	for version := ""; version != c.object.ResourceVersion; {
		var event struct {
			Type   string
			Object corev1.ConfigMap
		}
		harness.Must(t, c.events.Decode(&event))
		if event.Type == "ERROR" {
			t.Fatal("the watch ends with an error")
		}
		version = event.Object.ResourceVersion
	}
	return before
}

func (c *clocked) metrics(t *testing.T) map[string]float64 {
	t.Helper()
	return sqube.StoreMetrics(t, c.Interface)
}

// list lists at an exact version.
func (c *clocked) list(t *testing.T, version string) error {
	t.Helper()
	_, err := c.maps.List(t.Context(), metav1.ListOptions{ResourceVersion: version, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	return err
}
