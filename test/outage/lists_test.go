package outage

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/faults"
	"github.com/sqube/sqube/test/harness"
)

// The objects of a list that an outage interrupts: together larger than the buffers between server and client, and than what
// the server holds of a protobuf list.
const (
	listedObjects = 1300
	listedBytes   = 24 << 10 // in base64
)

// TestListBreaksOff takes the database away while clients read lists: no list ends as if it were complete.
func TestListBreaksOff(t *testing.T) {
	t.Parallel()
	dsn := harness.Postgres(t)
	proxy := faults.NewProxy(t, harness.ParseDSN(t, dsn).Host)
	c := serve(t, through(t, dsn, proxy.Addr()), "--datastore-timeout", "2s")
	fillLists(t, c)
	const path = "/api/v1/namespaces/default/configmaps"
	var lists []*brokenList
	for _, l := range []*brokenList{
		{name: "JSON", accept: "application/json"},
		{name: "JSON over HTTP/1.1", accept: "application/json", http1: true},
		{name: "compressed JSON", accept: "application/json", gzip: true},
		{name: "JSON of a page", accept: "application/json", path: "?limit=1299"},
		{name: "protobuf", accept: "application/vnd.kubernetes.protobuf"},
		{name: "compressed protobuf", accept: "application/vnd.kubernetes.protobuf", gzip: true},
		{name: "streaming list", accept: "application/json",
			path: "?watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=30"},
		{name: "Table", accept: "application/json;as=Table;v=v1;g=meta.k8s.io", table: true},
		{name: "compressed Table", accept: "application/json;as=Table;v=v1;g=meta.k8s.io", gzip: true, table: true},
		{name: "metadata", accept: "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", atOnce: true},
	} {
		l.begin(t, c, path)
		lists = append(lists, l)
	}
	proxy.Drop()
	var reading sync.WaitGroup
	for _, l := range lists {
		reading.Go(func() { l.end(t) })
	}
	reading.Wait()
	proxy.Resume()
	c.WaitReady(t)
	for _, l := range lists[:2] {
		l.begin(t, c, path)
		if n := l.read(); l.err != nil || n != listedObjects {
			t.Errorf("%s: afterwards, a list has %d objects and ends with %v", l.name, n, l.err)
		}
	}
}

// fillLists creates the objects.
func fillLists(t *testing.T, c *cluster) {
	t.Helper()
	names := make(chan int)
	var writers sync.WaitGroup
	for range 16 {
		writers.Go(func() {
			random := make([]byte, listedBytes)
			for n := range names {
				rand.Read(random)
				object := configMap(fmt.Sprintf("listed-%04d", n))
				object.Data = map[string]string{"random": base64.StdEncoding.EncodeToString(random)}
				if _, err := c.CoreV1().ConfigMaps("default").Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for n := range listedObjects {
		names <- n
	}
	close(names)
	writers.Wait()
}

// brokenList is a list that a client has started to read.
type brokenList struct {
	name, accept, path string
	gzip, http1        bool
	atOnce             bool // small enough to be sent before the database is gone
	table              bool // may be small enough

	response *http.Response
	first    [1]byte
	err      error
	body     bytes.Buffer
}

// begin reads the first byte.
func (l *brokenList) begin(t *testing.T, c *cluster, path string) {
	t.Helper()
	config := rest.CopyConfig(c.Config(t))
	if l.http1 {
		config.NextProtos = []string{"http/1.1"}
	}
	client, err := rest.HTTPClientFor(config)
	harness.Must(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.URL+path+l.path, nil)
	harness.Must(t, err)
	request.Header.Set("Accept", l.accept)
	if l.gzip {
		request.Header.Set("Accept-Encoding", "gzip")
	} else {
		request.Header.Set("Accept-Encoding", "identity")
	}
	l.err = nil
	l.body.Reset()
	if l.response, err = client.Do(request); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.response.Body.Close() })
	if l.response.StatusCode != http.StatusOK || (l.response.Header.Get("Content-Encoding") == "gzip") != l.gzip {
		t.Fatalf("%s: %s, %v", l.name, l.response.Status, l.response.Header)
	}
	if _, err := io.ReadFull(l.response.Body, l.first[:]); err != nil {
		t.Fatal(err)
	}
}

// read reads the rest, and counts the objects.
func (l *brokenList) read() int {
	all := io.MultiReader(bytes.NewReader(l.first[:]), l.response.Body)
	if l.gzip {
		if all, l.err = gzip.NewReader(all); l.err != nil {
			return 0
		}
	}
	_, l.err = io.Copy(&l.body, all)
	return bytes.Count(l.body.Bytes(), []byte(`"name":"listed-`))
}

// end expects that the list broke, or is complete.
func (l *brokenList) end(t *testing.T) {
	n := l.read()
	switch whole := n >= listedObjects; {
	case l.atOnce && (!whole || l.err != nil):
		t.Errorf("%s: has %d objects and ends with %v", l.name, n, l.err)
	case l.table && whole && l.err == nil:
	case !l.atOnce && !l.table && whole:
		t.Errorf("%s: was read before the database was gone", l.name)
	case l.response.Request.URL.Query().Has("watch"):
		if bytes.Contains(l.body.Bytes(), []byte("initial-events-end")) {
			t.Errorf("%s: is complete with %d objects", l.name, n)
		}
	case !l.atOnce && l.err == nil:
		t.Errorf("%s: ends as if complete with %d objects: %q", l.name, n, l.body.Bytes()[max(0, l.body.Len()-200):])
	case bytes.Contains(l.body.Bytes(), []byte(`Status`)):
		t.Errorf("%s: has a Status after %d objects", l.name, n)
	}
}
