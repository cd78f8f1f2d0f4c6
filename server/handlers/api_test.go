package handlers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/registry/rest"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"

	"github.com/sqube/sqube/server/handlers"
	"github.com/sqube/sqube/test/harness"
)

// upstreamDiscovery reads a discovery document from the module that this server is built from. It was recorded from a
// kube-apiserver of that version.
func upstreamDiscovery(t *testing.T, name string, into any) {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	if err != nil {
		t.Fatalf("finding the sources of Kubernetes: %v", err)
	}
	content, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "api", "discovery", name))
	harness.Must(t, err)
	harness.Must(t, json.Unmarshal(content, into))
}

// read gets a document from the tested API.
func read(t *testing.T, api http.Handler, path string, into any, headers ...string) {
	t.Helper()
	answer := do(t, api, http.MethodGet, path, headers...)
	if answer.Code != http.StatusOK {
		t.Fatalf("GET %s: %d %s", path, answer.Code, answer.Body)
	}
	if err := json.Unmarshal(answer.Body.Bytes(), into); err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
}

// TestDiscoveryOfVersionsIsUpstreams compares discovery with all of the recorded documents, which were made with every version
// and every feature enabled.
func TestDiscoveryOfVersionsIsUpstreams(t *testing.T) {
	featuregatetesting.SetFeatureGatesDuringTest(t, utilfeature.DefaultFeatureGate, featuregatetesting.FeatureOverrides{
		"AllAlpha": true,
		"AllBeta":  true,
	})
	api := newAPI(t, options{runtimeConfig: map[string]string{"api/all": "true"}})
	var ours, upstream map[string]any
	read(t, api, "/api", &ours)
	upstreamDiscovery(t, "api.json", &upstream)
	if diff := cmp.Diff(upstream, ours); diff != "" {
		t.Error(diff)
	}
	compareVersion(t, api, "/api/v1", "api__v1.json")
	var groups metav1.APIGroupList
	upstreamDiscovery(t, "apis.json", &groups)
	for _, group := range groups.Groups {
		for _, version := range group.Versions {
			compareVersion(t, api, "/apis/"+version.GroupVersion, "apis__"+group.Name+"__"+version.Version+".json")
		}
	}
}

// compareVersion compares the resource list of one version.
func compareVersion(t *testing.T, api http.Handler, path, document string) {
	t.Run(path, func(t *testing.T) {
		var ours, upstream metav1.APIResourceList
		read(t, api, path, &ours)
		upstreamDiscovery(t, document, &upstream)
		if diff := cmp.Diff(upstream, ours); diff != "" {
			t.Error(diff)
		}
	})
}

// TestEveryKindHasADefinition checks that server-side apply works with every kind that can be enabled: without a definition
// of the kind, field owners could not be recorded.
func TestEveryKindHasADefinition(t *testing.T) {
	featuregatetesting.SetFeatureGatesDuringTest(t, utilfeature.DefaultFeatureGate, featuregatetesting.FeatureOverrides{
		"AllAlpha": true,
		"AllBeta":  true,
	})
	var config handlers.Config
	newAPI(t, options{runtimeConfig: map[string]string{"api/all": "true"}, change: func(c *handlers.Config) { config = *c }})
	seen := 0
	for _, group := range config.Groups {
		for _, version := range group.PrioritizedVersions {
			for path, storage := range group.VersionedResourcesStorageMap[version.Version] {
				if _, connects := storage.(rest.Connecter); connects {
					continue // its kind is made of query parameters
				}
				kind, err := endpoints.GetResourceKind(version, storage, group.Scheme)
				if err != nil {
					t.Fatalf("%s %s: %v", version, path, err)
				}
				if err := convert(config, group.Scheme, kind); err != nil {
					t.Errorf("%s %s: %v", version, path, err)
				}
				seen++
			}
		}
	}
	if seen < 100 {
		t.Errorf("only %d resources were checked", seen)
	}
}

func convert(config handlers.Config, scheme *runtime.Scheme, kind schema.GroupVersionKind) error {
	object, err := scheme.New(kind)
	if err != nil {
		return err
	}
	object.GetObjectKind().SetGroupVersionKind(kind)
	_, err = config.TypeConverter.ObjectToTyped(object)
	return err
}

// TestServices checks that Services get addresses and node ports from the stored allocators, and release them.
func TestServices(t *testing.T) {
	a := newAPI(t, options{storage: newStore(t)})
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() {
		stop()
		running.Wait()
		a.informers.Shutdown()
	})

	// As in the bootstrap of a server.
	cidr := &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{serviceRange.String()}},
	}
	if _, err := a.client.NetworkingV1().ServiceCIDRs().Create(ctx, cidr, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	a.informers.Start(ctx.Done())
	repaired := make(chan struct{})
	running.Go(func() { a.built.Repair.Run(ctx, func() { close(repaired) }) })
	<-repaired

	services := a.client.CoreV1().Services("default")
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "s"},
		Spec: corev1.ServiceSpec{
			Type:  corev1.ServiceTypeNodePort,
			Ports: []corev1.ServicePort{{Port: 80, NodePort: 30080}},
		},
	}
	created, err := services.Create(ctx, service, metav1.CreateOptions{})
	harness.Must(t, err)
	address, err := netip.ParseAddr(created.Spec.ClusterIP)
	if err != nil || !netip.MustParsePrefix(serviceRange.String()).Contains(address) {
		t.Errorf("its address is %q", created.Spec.ClusterIP)
	}
	if _, err := a.client.NetworkingV1().IPAddresses().Get(ctx, created.Spec.ClusterIP, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}

	service.Name = "other"
	if _, err := services.Create(ctx, service, metav1.CreateOptions{}); err == nil {
		t.Fatal("two Services got the same node port")
	}
	harness.Must(t, services.Delete(ctx, "s", metav1.DeleteOptions{}))
	if _, err := services.Create(ctx, service, metav1.CreateOptions{}); err != nil {
		t.Errorf("the node port of a deleted Service isn't free: %v", err)
	}
}

// TestReadsDecodeNothing counts the allocations of lists and watches. Decoding one of the objects makes over 100; one that stays bytes makes
// a few.
func TestReadsDecodeNothing(t *testing.T) {
	const objects, fields, most = 200, 60, 50
	c := newStoredAPI(t, nil)
	data := make([]string, fields)
	for i := range data {
		data[i] = fmt.Sprintf(`"key-%d":"value-%d"`, i, i)
	}
	for i := range objects {
		c.send("POST", configMaps, asJSON, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m%d"},"data":{%s}}`,
			i, strings.Join(data, ",")), http.StatusCreated, nil)
	}
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ShardedListAndWatch, true)
	shard := "shardSelector=" + url.QueryEscape("shardRange(object.metadata.uid, '0x0000000000000000', '0x10000000000000000')")
	const stream = "?watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
	for _, read := range []struct{ query, accept string }{
		{"", asJSON},
		{"", "application/vnd.kubernetes.protobuf"},
		{"?" + shard, asJSON},
		{stream + "&" + shard, asJSON},
		{stream, asJSON},
		{stream, "application/vnd.kubernetes.protobuf;stream=watch"},
	} {
		var before, after goruntime.MemStats
		c.readTo(read.query, read.accept, "m99") // messages are made once, and kept if the cache has room
		goruntime.ReadMemStats(&before)
		c.readTo(read.query, read.accept, "m99")
		goruntime.ReadMemStats(&after)
		if each := (after.Mallocs - before.Mallocs) / objects; each > most {
			t.Errorf("configmaps%s as %s: %d allocations per object, want at most %d", read.query, read.accept, each, most)
		}
	}
}

// readTo reads config maps until text has arrived.
func (c client) readTo(query, accept, text string) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", c.base+configMaps+query, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Accept", accept)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer answer.Body.Close()
	read, buffer := []byte(nil), make([]byte, 64<<10)
	for !bytes.Contains(read, []byte(text)) {
		n, err := answer.Body.Read(buffer)
		if read = append(read, buffer[:n]...); err != nil && err != io.EOF {
			c.t.Fatal(err)
		} else if err == io.EOF && !bytes.Contains(read, []byte(text)) {
			c.t.Fatalf("%s is not in %.200s", text, read)
		}
	}
}
