package serve

import (
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sqube/sqube/test/harness"
)

// TestMemoryOfIdleWatches checks how much memory a watch takes that has nothing to report and is audited: what the garbage collector can't free, and its
// goroutines' stacks.
func TestMemoryOfIdleWatches(t *testing.T) {
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		dir := t.TempDir()
		policy := filepath.Join(dir, "policy.yaml")
		if err := os.WriteFile(policy, []byte(`{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}`), 0o600); err != nil {
			t.Fatal(err)
		}
		s := serve(t, []string{"--datastore", engine.Datastore, "--audit-policy-file", policy, "--audit-log-path", filepath.Join(dir, "audit.log")})
		s.settle(t)
		config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig())
		if err != nil {
			t.Fatal(err)
		}
		c := client(t, s.kubeconfig())
		eventually(t, "the memory of a server that has just started is steady", func() error {
			if grown := liveMemory(t, c) - liveMemory(t, c); math.Abs(grown) > 1<<20 {
				return fmt.Errorf("it changes by %.0f bytes", grown)
			}
			return nil
		})
		for _, test := range []struct {
			name               string
			watches, perClient int
			kilobytes          float64
		}{
			{"on shared connections", 3600, 90, 50},
			{"each on its own connection", 600, 1, 100},
		} {
			before := liveMemory(t, c)
			for range test.watches / test.perClient {
				connection := separateClient(t, config)
				for range test.perClient {
					response, err := connection.Get(config.Host + "/api/v1/pods?watch=1&allowWatchBookmarks=true&resourceVersion=0&fieldSelector=spec.nodeName%3Dnode")
					if err != nil || response.StatusCode != http.StatusOK {
						t.Fatal(response, err)
					}
					t.Cleanup(func() { response.Body.Close() })
				}
			}
			each := (liveMemory(t, c) - before) / float64(test.watches) / 1024
			t.Logf("a watch %s takes %.1f KiB", test.name, each)
			if each > test.kilobytes {
				t.Errorf("a watch %s takes %.1f KiB, more than %.0f", test.name, each, test.kilobytes)
			}
		}
	})
}

// separateClient returns a client with a connection of its own.
func separateClient(t *testing.T, config *rest.Config) *http.Client {
	t.Helper()
	secure, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: secure, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// memoryMetric is a line of /metrics about Go's memory.
var memoryMetric = regexp.MustCompile(`(?m)^go_memstats_(?:heap_alloc|stack_inuse)_bytes (\S+)$`)

// liveMemory returns how many bytes the server's objects and stacks take after collections. Each of these halves a stack of which little
// is in use.
func liveMemory(t *testing.T, c kubernetes.Interface) (bytes float64) {
	t.Helper()
	get := func(path, gc string) string {
		text, err := c.Discovery().RESTClient().Get().AbsPath(path).Param("gc", gc).DoRaw(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for range 4 {
		get("/debug/pprof/heap", "1")
	}
	found := memoryMetric.FindAllStringSubmatch(get("/metrics", ""), -1)
	if len(found) != 2 {
		t.Fatal("the metrics of Go's memory are missing", found)
	}
	for _, line := range found {
		n, err := strconv.ParseFloat(line[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		bytes += n
	}
	return bytes
}
