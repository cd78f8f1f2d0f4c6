package badinput

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

var recordFrom = flag.String("record-from", "", "record the responses of the kube-apiserver in this kubeconfig")

var goldenFile = filepath.Join("testdata", "kube-apiserver.json")

// waitsAtOnce is how many of the cases in which the server waits are sent at once. The number of processors does not limit
// them.
const waitsAtOnce = 64

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(waitsAtOnce)); err != nil {
		panic(err) // the flag no longer exists
	}
	os.Exit(m.Run())
}

// TestAnswersLikeKubeAPIServer sends every case and compares the responses with those of kube-apiserver.
func TestAnswersLikeKubeAPIServer(t *testing.T) {
	golden := readGolden(t)
	all := cases()
	checkNames(t, all)
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		// The gate was off in the recorded server; with it on, responses list CBOR as an accepted type.
		server := sqube.Start(t, sqube.Options{Datastore: engine.Datastore, Args: []string{"--feature-gates=CBORServingAndStorage=false"}})
		s := newSender(t, server.Config(t))
		s.prepare(t)
		for _, c := range all {
			t.Run(c.name, func(t *testing.T) {
				if c.waits {
					t.Parallel()
				}
				if c.instead != 0 {
					if got := s.send(t, c); got.Code != c.instead {
						t.Errorf("want status %d, got %+v", c.instead, got)
					}
					return
				}
				want, recorded := golden[c.name]
				if !recorded {
					t.Fatalf("%s has no response for this case; record it as described in the package documentation", goldenFile)
				}
				got := s.send(t, c)
				if want.Code == http.StatusInternalServerError {
					// kube-apiserver reports the client's error as its own.
					if got.Code < 400 || got.Code >= 500 {
						t.Errorf("%s %s: the client's error got status %d: %v", c.method, short(c.path), got.Code, got.JSON)
					}
					return
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s %s: kube-apiserver's response (-) and this one (+) differ:\n%s", c.method, short(c.path), diff)
				}
			})
		}
		if t.Failed() {
			return
		}
		// After all cases, the server still serves.
		ready := s.send(t, badCase{method: "GET", path: "/readyz"})
		if ready.Code != 200 {
			t.Errorf("/readyz returns %d", ready.Code)
		}
	})
}

// TestRecord writes the golden file if -record-from is set, and otherwise does nothing.
func TestRecord(t *testing.T) {
	if *recordFrom == "" {
		return
	}
	config, err := clientcmd.BuildConfigFromFlags("", *recordFrom)
	harness.Must(t, err)
	s := newSender(t, config)
	s.prepare(t)
	golden := map[string]answer{}
	all := cases()
	checkNames(t, all)
	for _, c := range all {
		if c.instead != 0 {
			continue
		}
		golden[c.name] = s.send(t, c)
	}
	for _, path := range []string{configMaps + "/cm", configMaps + "/fixed", pods + "/pod", services + "/svc", deployments + "/web", widgets + "/one"} {
		if a := s.send(t, get("", path)); a.Code != http.StatusOK {
			t.Errorf("one of the cases has changed %s: %+v", path, a)
		}
	}
	harness.Must(t, os.WriteFile(goldenFile, encode(t, golden), 0o644))
}

// encode writes one response per line, so that diffs show single responses.
func encode(t *testing.T, golden map[string]answer) []byte {
	t.Helper()
	text := bytes.NewBufferString("{\n")
	for i, name := range slices.Sorted(maps.Keys(golden)) {
		if i > 0 {
			text.WriteString(",\n")
		}
		key, err := json.Marshal(name)
		harness.Must(t, err)
		value, err := json.Marshal(golden[name])
		harness.Must(t, err)
		fmt.Fprintf(text, "%s: %s", key, value)
	}
	text.WriteString("\n}\n")
	return text.Bytes()
}

func readGolden(t *testing.T) map[string]answer {
	t.Helper()
	raw, err := os.ReadFile(goldenFile)
	harness.Must(t, err)
	golden := map[string]answer{}
	harness.Must(t, json.Unmarshal(raw, &golden))
	return golden
}

// checkNames fails the test if two cases have the same name, which is their key in the golden file.
func checkNames(t *testing.T, all []badCase) {
	t.Helper()
	seen := map[string]bool{}
	for _, c := range all {
		if seen[c.name] {
			t.Fatalf("two cases are named %q", c.name)
		}
		seen[c.name] = true
	}
}

// short truncates long strings for messages.
func short(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return fmt.Sprintf("%s… (%d bytes)", s[:most], len(s))
}
