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

var recordFrom = flag.String("record-from", "", "record the answers of the kube-apiserver that this kubeconfig names")

var goldenFile = filepath.Join("testdata", "kube-apiserver.json")

// waitsAtOnce is how many cases for which the server waits are sent at once: it is not the number of processors that limits them.
const waitsAtOnce = 64

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(waitsAtOnce)); err != nil {
		panic(err) // the flag is gone
	}
	os.Exit(m.Run())
}

// TestAnswersLikeKubeAPIServer sends every case and compares the answers with those of kube-apiserver.
func TestAnswersLikeKubeAPIServer(t *testing.T) {
	golden := readGolden(t)
	all := cases()
	checkNames(t, all)
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		// The gate is off in what the answers were recorded from; with it on, they name CBOR among what is accepted.
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
						t.Errorf("the answer is not %d but %+v", c.instead, got)
					}
					return
				}
				want, recorded := golden[c.name]
				if !recorded {
					t.Fatalf("%s has no answer to this case; record them as the package says", goldenFile)
				}
				got := s.send(t, c)
				if want.Code == http.StatusInternalServerError {
					// kube-apiserver takes the client's error for its own.
					if got.Code < 400 || got.Code >= 500 {
						t.Errorf("%s %s: the answer to the client's error is %d: %v", c.method, short(c.path), got.Code, got.JSON)
					}
					return
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s %s: kube-apiserver's answer (-) and this one (+) differ:\n%s", c.method, short(c.path), diff)
				}
			})
		}
		if t.Failed() {
			return
		}
		// After all of it, the server still serves.
		ready := s.send(t, badCase{method: "GET", path: "/readyz"})
		if ready.Code != 200 {
			t.Errorf("/readyz answers %d", ready.Code)
		}
	})
}

// TestRecord writes the golden file when it is told from whom; without that it has nothing to test.
func TestRecord(t *testing.T) {
	if *recordFrom == "" {
		return
	}
	config, err := clientcmd.BuildConfigFromFlags("", *recordFrom)
	if err != nil {
		t.Fatal(err)
	}
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
	if err := os.WriteFile(goldenFile, encode(t, golden), 0o644); err != nil {
		t.Fatal(err)
	}
}

// encode writes an answer per line, so that a change of one shows as that.
func encode(t *testing.T, golden map[string]answer) []byte {
	t.Helper()
	text := bytes.NewBufferString("{\n")
	for i, name := range slices.Sorted(maps.Keys(golden)) {
		if i > 0 {
			text.WriteString(",\n")
		}
		key, err := json.Marshal(name)
		if err != nil {
			t.Fatal(err)
		}
		value, err := json.Marshal(golden[name])
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(text, "%s: %s", key, value)
	}
	text.WriteString("\n}\n")
	return text.Bytes()
}

func readGolden(t *testing.T) map[string]answer {
	t.Helper()
	raw, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	golden := map[string]answer{}
	if err := json.Unmarshal(raw, &golden); err != nil {
		t.Fatal(err)
	}
	return golden
}

// checkNames fails the test when two cases have one name, since the golden file knows them by it.
func checkNames(t *testing.T, all []badCase) {
	t.Helper()
	seen := map[string]bool{}
	for _, c := range all {
		if seen[c.name] {
			t.Fatalf("two cases are called %q", c.name)
		}
		seen[c.name] = true
	}
}

// short cuts what would fill the screen.
func short(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return fmt.Sprintf("%s… (%d bytes)", s[:most], len(s))
}
