package controllers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
)

// TestEndWhileBuilding loses leadership while a controller is being built, which fails because of that: the server continues. The
// controllers already built get to end what they began.
func TestEndWhileBuilding(t *testing.T) {
	discovery := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/api":
			fmt.Fprint(w, `{"kind":"APIVersions","versions":["v1"]}`)
		case "/apis":
			fmt.Fprint(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`)
		case "/api/v1":
			fmt.Fprint(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["get","list"]}]}`)
		default:
			http.NotFound(w, r)
		}
	}))
	defer discovery.Close()
	ctx, lose := context.WithCancel(t.Context())
	slow := Controller{Name: "slow-controller", Build: func(ctx context.Context, _ Shared) (func(context.Context), error) {
		lose()
		<-ctx.Done()
		return nil, fmt.Errorf("list nodes: %w", ctx.Err())
	}}
	ended := false
	built := Controller{Name: "built-controller", Build: func(context.Context, Shared) (func(context.Context), error) {
		return func(ctx context.Context) {
			<-ctx.Done()
			ended = true
		}, nil
	}}
	loopback := &rest.Config{Host: discovery.URL}
	c := Config{
		Loopback: loopback, LoopbackOf: func(string, ...string) *rest.Config { return loopback }, Settings: &Settings{},
		Informers: informers.NewSharedInformerFactory(fake.NewClientset(), 0), InformersStop: make(chan struct{}),
		Track: func(string) func() { return func() {} }, resources: &resourceChanges{},
	}
	if err := run(ctx, c, []controller{built.internal(), slow.internal()}); err != nil {
		t.Errorf("run returns %v, which would stop the server", err)
	}
	if !ended {
		t.Error("the controller that had been built did not end")
	}
}

// TestContents finds that requests are sent unless a resource is known to be empty.
func TestContents(t *testing.T) {
	for name, test := range map[string]struct {
		empty    bool
		err      error
		requests int
	}{
		"empty":     {empty: true},
		"not empty": {requests: 2},
		"unknown":   {empty: true, err: errors.New("the database does not answer"), requests: 2},
	} {
		_, client := newTestInformers(t)
		configMaps := contents{Interface: client, empty: func(context.Context, schema.GroupVersionResource, string) (bool, error) {
			return test.empty, test.err
		}}.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace("default")
		if err := configMaps.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if list, err := configMaps.List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 0 {
			t.Errorf("%s: the list is %v, %v", name, list, err)
		}
		if sent := client.Actions(); len(sent) != test.requests {
			t.Errorf("%s: the requests are %v", name, sent)
		}
	}
}

func TestAgainRunsOnceThingsHaveSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		changes := &resourceChanges{}
		changed := changes.subscribe(ctx)
		var starts, running atomic.Int32
		done := make(chan struct{})
		go func() {
			defer close(done)
			again(ctx, changed, func(ctx context.Context) {
				starts.Add(1)
				running.Add(1)
				defer running.Add(-1)
				<-ctx.Done()
			})
		}()
		expect := func(when string, want int32) {
			t.Helper()
			synctest.Wait()
			if got := starts.Load(); got != want {
				t.Fatalf("%s: run %d times, want %d", when, got, want)
			}
			if got := running.Load(); got != 1 {
				t.Fatalf("%s: %d running at the same time, want 1", when, got)
			}
		}

		expect("at start", 1)
		for range 5 { // a definition is written several times until it is established
			changes.notify()
			time.Sleep(discoveryQuiet / 2) // the bubble's clock
		}
		expect("while it changes", 1)
		time.Sleep(discoveryQuiet)
		expect("when it has settled", 2)
		time.Sleep(time.Hour)
		expect("without a change", 2)
		for n := range int32(3) { // two operators write a definition in turns
			for range 2 * discoveryLatest / discoveryQuiet {
				changes.notify()
				time.Sleep(discoveryQuiet / 2)
			}
			changes.notify()
			time.Sleep(discoveryQuiet / 4)
			expect("while it never stops changing", 3+n)
		}
		time.Sleep(time.Hour)
		expect("when it has stopped", 6)

		cancel()
		<-done
		if running.Load() != 0 {
			t.Fatal("still running after the end")
		}
	})
}

func TestSelection(t *testing.T) {
	t.Parallel()
	others := []Controller{{Name: "deployment-controller", Aliases: []string{"deployment"}}, {Name: "selinux-warning-controller", Off: true}}
	api := Names()
	everything := append([]string{"deployment-controller"}, api...) // in the order in which they are built
	without := func(names ...string) []string {
		return slices.DeleteFunc(slices.Clone(everything), func(name string) bool { return slices.Contains(names, name) })
	}
	const collector, accounts = "garbage-collector-controller", "serviceaccount-controller"
	for _, test := range []struct {
		selection  string
		run, named []string // named: also beside a kube-controller-manager
	}{
		{"*", everything, nil},
		{"api", api, nil},
		{"api,deployment", everything, []string{"deployment-controller"}},
		{"*,selinux-warning-controller", append([]string{"deployment-controller", "selinux-warning-controller"}, api...), []string{"selinux-warning-controller"}},
		{"-deployment,*", api, nil},
		{"-*", nil, nil},
		{"", nil, nil},
		{"-" + collector, nil, nil}, // as in kube-controller-manager: nothing enables the others
		{"*,-" + collector, without(collector), nil},
		{"-garbagecollector,*", without(collector), nil},
		{"*,-garbagecollector,-serviceaccount", without(collector, accounts), nil},
		{accounts, []string{accounts}, []string{accounts}},
		{"*," + collector, everything, []string{collector}},
		{"pvc-protection,-*", []string{"persistentvolumeclaim-protection-controller"}, []string{"persistentvolumeclaim-protection-controller"}},
		{accounts + ",-" + accounts, []string{accounts}, []string{accounts}}, // the first counts
		{"-" + accounts + "," + accounts, nil, nil},
	} {
		selection := strings.Split(test.selection, ",")
		if test.selection == "" {
			selection = nil
		}
		if err := Validate(selection, others); err != nil {
			t.Errorf("%q: %v", test.selection, err)
		}
		for least, want := range map[choice][]string{byWildcard: test.run, named: test.named} {
			var got []string
			for _, c := range choose(Config{Others: others}.known(), selection, least) {
				got = append(got, c.fullName())
			}
			if !slices.Equal(got, want) {
				t.Errorf("%q runs %v, want %v", test.selection, got, want)
			}
		}
	}
	for selection, want := range map[string]string{
		"job-controller": `"job-controller" is not in the list of known controllers: namespace-controller, garbage-`,
		"*,-api":         `"api" is not in the list`,
		"*,-nodeipam":    `"nodeipam" is not in the list`,
		"*,namespaces":   `"namespaces" is not in the list`,
		"*,":             `"" is not in the list`,
		"--" + collector: `"-garbage-collector-controller" is not in the list`,
		"*,-" + collector + ",storage-version-migrator-controller": "storage-version-migrator-controller needs garbage-collector-controller",
	} {
		if err := Validate(strings.Split(selection, ","), others); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: got %v, want %s", selection, err, want)
		}
	}
}

// TestGroups checks that controllers that wait for the same are built together, and that those that wait for nothing come first.
func TestGroups(t *testing.T) {
	secrets, claims := corev1.SchemeGroupVersion.WithResource("secrets"), corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims")
	var names [][]string
	for _, group := range inGroups([]controller{
		{name: "tokens", awaits: of(secrets)}, {name: "accounts"}, {name: "claims", awaits: of(claims)}, {name: "collector", awaitsClients: true},
		{name: "cleaner", awaits: of(secrets)}, {name: "roles"},
	}) {
		var in []string
		for _, c := range group {
			in = append(in, c.name)
		}
		names = append(names, in)
	}
	if want := [][]string{{"accounts", "roles"}, {"tokens", "cleaner"}, {"claims"}, {"collector"}}; !slices.EqualFunc(names, want, slices.Equal) {
		t.Errorf("the groups are %v instead of %v", names, want)
	}
}

// TestStartNeeded checks what a controller waits for: the first part in any case, and a client's write or an object of its resource.
func TestStartNeeded(t *testing.T) {
	closed, open := make(chan struct{}), make(chan struct{})
	close(closed)
	resource := corev1.SchemeGroupVersion.WithResource("secrets")
	woken := func(_ context.Context, _ schema.GroupVersionResource, wake func()) (func(), bool) {
		go wake()
		return func() {}, true
	}
	wokenAtOnce := func(_ context.Context, _ schema.GroupVersionResource, wake func()) (func(), bool) {
		wake()
		return nil, false
	}
	asleep := func(context.Context, schema.GroupVersionResource, func()) (func(), bool) { return func() {}, true }
	halfAsleep := func(ctx context.Context, of schema.GroupVersionResource, wake func()) (func(), bool) {
		if of == resource {
			return sleepless(ctx, of, wake)
		}
		return asleep(ctx, of, wake)
	}
	for name, test := range map[string]struct {
		first <-chan struct{}
		c     controller
		with  Config
		waits bool
	}{
		"a client has written":       {closed, controller{awaitsClients: true}, Config{Written: closed}, false},
		"no client has written":      {closed, controller{awaitsClients: true}, Config{Written: open}, true},
		"a client may have":          {closed, controller{awaitsClients: true}, Config{}, false},
		"there are objects":          {closed, controller{awaits: of(resource)}, Config{Sleep: sleepless}, false},
		"there are objects later":    {closed, controller{awaits: of(resource)}, Config{Sleep: woken}, false},
		"the first was just created": {closed, controller{awaits: of(resource)}, Config{Sleep: wokenAtOnce}, false},
		"there are no objects":       {closed, controller{awaits: of(resource)}, Config{Sleep: asleep}, true},
		"one of two has objects":     {closed, controller{awaits: of(schema.GroupVersionResource{Resource: "empty"}, resource)}, Config{Sleep: halfAsleep}, false},
		"others are not built yet":   {open, controller{awaits: of(resource)}, Config{Sleep: sleepless}, true},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		if test.waits {
			cancel() // it can only return because of this
		}
		started := 0
		startNeeded(ctx, test.first, []controller{test.c}, test.with, func(int) { started++ })
		if started == 0 != test.waits {
			t.Errorf("%s: started %d times, waits is not %t", name, started, test.waits)
		}
		cancel()
	}
}
