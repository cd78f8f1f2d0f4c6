package servertest_test

import (
	"context"
	"encoding/json"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/sqube/sqube/server/servertest"
	"github.com/sqube/sqube/test/harness"
)

// What a server with nothing to do may run. An informer that is not fed from the store takes ten goroutines: only those of bootstrap.upkeep are left,
// in the first seconds. A controller without objects must wait (controllers.controller.awaits).
const (
	maxInformers  = 3
	maxGoroutines = 140
)

// TestFurtherServer counts what a second server of the process runs when it has started and nobody uses it.
func TestFurtherServer(t *testing.T) {
	start := func() {
		s := servertest.Run(t, servertest.Options{})
		harness.Eventually(t, "controllers run", func() bool {
			_, err := client(t, s).CoreV1().ServiceAccounts("kube-system").Get(t.Context(), "default", metav1.GetOptions{})
			return err == nil
		})
	}
	var informers, goroutines int
	settle := func() {
		informers, goroutines = running()
		for quiet := 0; quiet < 20; time.Sleep(50 * time.Millisecond) { // until nothing has started for a second
			n, all := running()
			if quiet++; n > informers || all > goroutines {
				quiet = 0
			}
			informers, goroutines = n, all
		}
	}
	start()
	settle()
	before, beforeAll := informers, goroutines
	start()
	settle()
	if informers-before > maxInformers {
		t.Errorf("%d informers of client-go run instead of %d", informers-before, maxInformers)
	}
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, harness.Patience, true, func(context.Context) (bool, error) {
		_, goroutines = running()
		return goroutines-beforeAll <= maxGoroutines, nil
	})
	if err != nil {
		t.Errorf("%d goroutines run instead of %d", goroutines-beforeAll, maxGoroutines)
	}
}

// TestDefaultRoles checks that each server has the default roles and bindings as its own objects, with the same content.
func TestDefaultRoles(t *testing.T) {
	var uids []types.UID
	var contents []string
	for range 3 {
		s := servertest.Run(t, servertest.Options{})
		rbac := client(t, s).RbacV1()
		role, err := rbac.ClusterRoles().Get(t.Context(), "system:node", metav1.GetOptions{})
		harness.Must(t, err)
		binding, err := rbac.ClusterRoleBindings().Get(t.Context(), "cluster-admin", metav1.GetOptions{})
		harness.Must(t, err)
		uids = append(uids, role.UID, binding.UID)
		for _, o := range []metav1.Object{role, binding} {
			if age := time.Since(o.GetCreationTimestamp().Time); age > harness.Patience || age < -time.Second {
				t.Errorf("%s is %v old", o.GetName(), age)
			}
			o.SetUID("")
			o.SetResourceVersion("")
			o.SetCreationTimestamp(metav1.Time{})
			for i := range o.GetManagedFields() {
				o.GetManagedFields()[i].Time = nil
			}
		}
		content, err := json.Marshal([]any{role, binding})
		harness.Must(t, err)
		contents = append(contents, string(content))
	}
	if slices.Sort(uids); len(slices.Compact(slices.Clone(uids))) != len(uids) {
		t.Errorf("servers share objects: %v", uids)
	}
	for _, content := range contents[1:] {
		if content != contents[0] {
			t.Errorf("a server has\n%s\nanother one\n%s", content, contents[0])
		}
	}
}

// TestFurtherAPI checks that a further server of the process, which makes what it needs for a group of resources when that is asked for, serves the
// same resources as the first, and each of them.
func TestFurtherAPI(t *testing.T) {
	var documents [2]map[string]string
	for i := range documents {
		s := servertest.Run(t, servertest.Options{})
		clients := client(t, s)
		_, lists, err := clients.Discovery().ServerGroupsAndResources()
		harness.Must(t, err)
		documents[i] = map[string]string{}
		listed := 0
		for _, list := range lists {
			document, err := json.Marshal(list)
			harness.Must(t, err)
			documents[i][list.GroupVersion] = string(document)
			for _, resource := range list.APIResources {
				if !slices.Contains(resource.Verbs, "list") {
					continue
				}
				path := strings.Replace("/apis/"+list.GroupVersion+"/"+resource.Name, "/apis/v1/", "/api/v1/", 1)
				if err := clients.CoreV1().RESTClient().Get().AbsPath(path).Do(t.Context()).Error(); err != nil {
					t.Errorf("server %d: list %s: %v", i, path, err)
				}
				listed++
			}
		}
		if listed < 50 {
			t.Errorf("server %d: only %d resources can be listed", i, listed)
		}
	}
	for version, document := range documents[0] {
		if documents[1][version] != document {
			t.Errorf("the first server has\n%s\nthe second one\n%s", document, documents[1][version])
		}
	}
}

// running counts client-go's informers and the goroutines of the process.
func running() (informers, goroutines int) {
	text := make([]byte, 16<<20)
	text = text[:runtime.Stack(text, true)]
	return strings.Count(string(text), "tools/cache.(*sharedProcessor).run("), runtime.NumGoroutine()
}
