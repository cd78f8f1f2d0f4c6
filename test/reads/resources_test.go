package reads

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/sqube/sqube/test/harness"
)

const (
	computed   = "componentstatuses"         // computed for each response, in any order; not stored in rows
	recorded   = "history.sqube.io/v1alpha1" // likewise; not in protobuf
	kubeletOwn = "podcertificaterequests"    // only kubelets create them, so there are none
)

// alone reports whether the object at a place of a list is also read by itself: the test's own are, and the first few others.
func alone(at int, name string) bool {
	return at < 5 || name == "rich" || strings.HasPrefix(name, "generated-")
}

// testResources reads every listable resource from discovery, in each of its versions.
func testResources(t *testing.T, c *cluster) {
	createObjects(t, c)
	_, groups, err := c.typed.Discovery().ServerGroupsAndResources()
	harness.Must(t, err)
	seen := map[string]bool{}
	for _, group := range groups {
		for _, resource := range group.APIResources {
			if !slices.Contains(resource.Verbs, "list") || resource.Name == computed || group.GroupVersion == recorded || group.GroupVersion == "reads.example.com/v1" || c.few && group.GroupVersion != "v1" {
				continue
			}
			seen[resource.Name] = true
			t.Run(group.GroupVersion+"/"+resource.Name, func(t *testing.T) {
				root := "/apis/"
				if group.GroupVersion == "v1" {
					root = "/api/"
				}
				collection := root + group.GroupVersion + "/" + resource.Name
				if resource.Namespaced {
					c.same(t, collection) // of all namespaces
					collection = root + group.GroupVersion + "/namespaces/" + namespace + "/" + resource.Name
				}
				names := testCollection(t, c, collection, group.GroupVersion == "v1")
				if len(names) == 0 && resource.Name != kubeletOwn {
					t.Error("there are no objects to read")
				}
				for i, name := range names {
					if alone(i, name) {
						testObject(t, c, collection+"/"+url.PathEscape(name))
					}
				}
				c.same(t, collection+"/no-such-object")
				testProtobuf(t, c, collection)
				if slices.Contains(resource.Verbs, "watch") {
					testEvents(t, c, collection, names)
				}
				if slices.Contains(resource.Verbs, "patch") && slices.Contains(names, "rich") {
					testAnswers(t, c, collection+"/rich")
				}
			})
		}
	}
	if len(seen) < 65 && !c.few {
		t.Errorf("read only %d resources: %v", len(seen), seen)
	}
}

// testCollection lists in every way, or only in those that depend on the resource, and returns the names of the objects.
func testCollection(t *testing.T, c *cluster, path string, everyWay bool) (names []string) {
	t.Helper()
	whole := c.same(t, path)
	revision := whole.version(t)
	var list struct {
		Items []metav1.PartialObjectMetadata
	}
	harness.Must(t, json.Unmarshal(whole.body, &list))
	for _, item := range list.Items {
		names = append(names, item.Name)
	}
	queries := []url.Values{
		{"resourceVersion": {revision}, "resourceVersionMatch": {"Exact"}},
		{"labelSelector": {"app=rich"}},
		{"fieldSelector": {"metadata.name=rich"}},
		{"fieldSelector": {"metadata.namespace=" + namespace}},
		{"fieldSelector": {"status.phase=Running"}},
		{"fieldSelector": {"spec.nodeName=rich"}},
		{"fieldSelector": {"type=example.com/<kind>"}},
	}
	tables := []string{"v1", "v1?includeObject=Object"}
	if everyWay {
		queries = append(queries, []url.Values{
			{"resourceVersion": {"0"}},
			{"resourceVersion": {revision}},
			{"resourceVersion": {revision}, "resourceVersionMatch": {"NotOlderThan"}},
			{"resourceVersion": {"1"}, "resourceVersionMatch": {"Exact"}},
			{"resourceVersion": {"x"}},
			{"labelSelector": {"app.kubernetes.io/name in (a_b.c-D,other),!missing,empty="}},
			{"labelSelector": {"app!=rich"}},
			{"labelSelector": {"app=rich,a notin (1)"}},
			{"labelSelector": {"a>0"}},
			{"labelSelector": {"= ="}},
			{"fieldSelector": {"metadata.name!=rich"}},
			{"fieldSelector": {"metadata.name=rich"}, "labelSelector": {"app=rich"}},
			{"fieldSelector": {"metadata.name=rich"}, "resourceVersion": {revision}, "resourceVersionMatch": {"Exact"}},
			{"limit": {"1"}, "continue": {"tampered"}},
			{"sendInitialEvents": {"true"}},
		}...)
		tables = append(tables, "v1beta1", "v1?includeObject=None", "v1?includeObject=x", "v1?limit=1", "v1?labelSelector=app%3Drich",
			"v1?fieldSelector=metadata.name%3Dnone", "v1?resourceVersion=x")
	}
	for _, query := range queries {
		c.same(t, path+"?"+query.Encode())
	}
	for _, table := range tables {
		version, query, _ := strings.Cut(table, "?")
		c.same(t, path+"?"+query, "Accept", "application/json;as=Table;g=meta.k8s.io;v="+version)
	}
	aThird := url.Values{"limit": {strconv.Itoa((len(names) + 2) / 3)}, "resourceVersion": {revision}, "resourceVersionMatch": {"Exact"}}
	testPages(t, c, path, aThird, len(names))
	testPages(t, c, path, url.Values{"limit": {"2"}, "labelSelector": {"app=rich"}}, -1)
	return names
}

// testPages reads page by page, and expects that many objects in total, unless want is -1.
func testPages(t *testing.T, c *cluster, path string, query url.Values, want int) {
	t.Helper()
	n := 0
	for {
		page := c.same(t, path+"?"+query.Encode())
		if page.code != http.StatusOK {
			t.Errorf("GET %s?%s returns %d", path, query.Encode(), page.code)
			return
		}
		var list metav1.PartialObjectMetadataList
		harness.Must(t, json.Unmarshal(page.body, &list))
		n += len(list.Items)
		if list.Continue == "" {
			break
		}
		query.Set("continue", list.Continue)
		query.Del("resourceVersion")
		query.Del("resourceVersionMatch")
	}
	if want >= 0 && n != want {
		t.Errorf("GET %s in pages has %d objects, want %d", path, n, want)
	}
}

func testObject(t *testing.T, c *cluster, path string) {
	t.Helper()
	whole := c.same(t, path)
	if whole.code != http.StatusOK {
		t.Errorf("GET %s returns %d", path, whole.code)
		return
	}
	c.same(t, path+"?resourceVersion=0")
	c.same(t, path+"?resourceVersion="+whole.version(t))
	testProtobuf(t, c, path)
}

var (
	allTypes = runtime.NewScheme()
	codecs   = serializer.NewCodecFactory(allTypes)
)

func init() {
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensionsv1.AddToScheme, apiregistrationv1.AddToScheme} {
		utilruntime.Must(add(allTypes))
	}
}

// testProtobuf reads the path as protobuf too, and compares the objects.
func testProtobuf(t *testing.T, c *cluster, path string) {
	t.Helper()
	for range 20 {
		text, binary := c.get(t, path), c.get(t, path, "Accept", "application/vnd.kubernetes.protobuf")
		problem := differAsObjects(text, binary)
		if problem == nil {
			return
		}
		if again := c.get(t, path); again.version(t) == text.version(t) {
			t.Errorf("GET %s as protobuf: %v", path, problem)
			return
		}
	}
	t.Errorf("GET %s: keeps changing", path)
}

func differAsObjects(text, binary answer) error {
	if text.code != binary.code || binary.header.Get("Content-Type") != "application/vnd.kubernetes.protobuf" {
		return fmt.Errorf("%d of %q", binary.code, binary.header.Get("Content-Type"))
	}
	want, _, err := codecs.UniversalDeserializer().Decode(text.body, nil, nil)
	if err != nil {
		return err
	}
	got, _, err := codecs.UniversalDeserializer().Decode(binary.body, nil, nil)
	if err != nil {
		return err
	}
	if !equality.Semantic.DeepEqual(got, want) {
		return fmt.Errorf("got\n%+v, want\n%+v", got, want)
	}
	return nil
}
