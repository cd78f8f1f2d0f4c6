package serve

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestMemoryOfIdleWatches checks how much memory a watch takes that has nothing to report: what the garbage collector can't free, and its
// goroutines' stacks. Such watches are counted, and still report what happens later. Those of Secrets are audited.
func TestMemoryOfIdleWatches(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	policy := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(policy, []byte(`{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [
		{"level": "Metadata", "resources": [{"resources": ["secrets"]}]}, {"level": "None"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serve(t, []string{"--audit-policy-file", policy, "--audit-log-path", filepath.Join(dir, "audit.log")})
	settle(t, s)
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
	harness.Must(t, err)
	c := client(t, s.Kubeconfig)
	harness.Retry(t, "the memory of a server that has just started is steady", func() error {
		if grown := liveMemory(t, c) - liveMemory(t, c); math.Abs(grown) > 1<<20 {
			return fmt.Errorf("it changes by %.0f bytes", grown)
		}
		return nil
	})
	for _, test := range []struct {
		name, resource     string
		watches, perClient int
		kilobytes          float64
	}{
		{"on shared connections", "configmaps", 1350, 90, 25},
		{"on shared connections, audited,", "secrets", 1350, 90, 30},
		{"on its own connection", "configmaps", 300, 1, 75},
	} {
		before, counted := liveMemory(t, c), openWatches(t, c, test.resource)
		var responses []*http.Response
		for range test.watches / test.perClient {
			connection := separateClient(t, config)
			for range test.perClient {
				response, err := connection.Get(config.Host + "/api/v1/" + test.resource +
					"?watch=1&allowWatchBookmarks=true&resourceVersion=0&fieldSelector=metadata.name%3Dlater")
				if err != nil || response.StatusCode != http.StatusOK {
					t.Fatal(response, err)
				}
				t.Cleanup(func() { response.Body.Close() })
				responses = append(responses, response)
			}
		}
		harness.Retry(t, "a watch takes little memory", func() error {
			each := (liveMemory(t, c) - before) / float64(test.watches) / 1024
			t.Logf("a watch %s takes %.1f KiB", test.name, each)
			if each > test.kilobytes {
				return fmt.Errorf("a watch %s takes %.1f KiB, more than %.0f", test.name, each, test.kilobytes)
			}
			return nil
		})
		if got := openWatches(t, c, test.resource) - counted; got != float64(test.watches) {
			t.Errorf("apiserver_longrunning_requests counts %.0f of %d watches %s", got, test.watches, test.name)
		}
		later := c.CoreV1().RESTClient().Post().Namespace("default").Resource(test.resource).Body([]byte(`{"metadata": {"name": "later"}}`))
		harness.Must(t, later.SetHeader("Content-Type", "application/json").Do(t.Context()).Error())
		for _, response := range responses {
			awaitAdded(t, response)
		}
		harness.Must(t, c.CoreV1().RESTClient().Delete().Namespace("default").Resource(test.resource).Name("later").Do(t.Context()).Error())
	}
}

// awaitAdded reads a watch until an object has been added.
func awaitAdded(t *testing.T, watch *http.Response) {
	t.Helper()
	events := json.NewDecoder(watch.Body)
	for {
		var event metav1.WatchEvent
		if err := events.Decode(&event); err != nil {
			t.Fatal("the watch does not report the object: ", err)
		}
		if event.Type == "ADDED" {
			return
		}
	}
}

// openWatches returns how many watches of an object of that kind the server counts.
func openWatches(t *testing.T, c kubernetes.Interface, resource string) (n float64) {
	t.Helper()
	line := regexp.MustCompile(`(?m)^apiserver_longrunning_requests{[^}]*resource="` + resource + `",scope="resource",[^}]*verb="WATCH",[^}]*} (\S+)$`)
	if found := line.FindStringSubmatch(sqube.Metrics(t, c)); found != nil {
		var err error
		n, err = strconv.ParseFloat(found[1], 64)
		harness.Must(t, err)
	}
	return n
}

// separateClient returns a client with a connection of its own.
func separateClient(t *testing.T, config *rest.Config) *http.Client {
	t.Helper()
	secure, err := rest.TLSConfigFor(config)
	harness.Must(t, err)
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
		harness.Must(t, err)
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
		harness.Must(t, err)
		bytes += n
	}
	return bytes
}
