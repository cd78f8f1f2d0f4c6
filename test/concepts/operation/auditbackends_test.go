package operation

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// bodiesPolicy records ConfigMaps with their bodies, and nothing else.
const bodiesPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- {level: None, users: ["system:apiserver"]}
- {level: RequestResponse, verbs: [get, list, create], resources: [{group: "", resources: [configmaps]}]}
- {level: None}
`

// auditWebhook receives events as the audit webhook of a server.
type auditWebhook struct {
	// Config is the path of its kubeconfig.
	Config string

	mu     sync.Mutex
	events []kit.AuditEvent
}

// newAuditWebhook starts a webhook that is stopped when the test ends. It rejects events whose URI contains refused.
func newAuditWebhook(t testing.TB, refused string) *auditWebhook {
	w := &auditWebhook{}
	server := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, r *http.Request) {
		var list struct {
			Kind, APIVersion string
			Items            []kit.AuditEvent
		}
		if err := json.NewDecoder(r.Body).Decode(&list); err != nil || list.Kind != "EventList" || list.APIVersion != "audit.k8s.io/v1" {
			t.Errorf("the webhook received %+v, %v", list, err)
		}
		for _, e := range list.Items {
			if refused != "" && strings.Contains(e.RequestURI, refused) {
				response.WriteHeader(http.StatusInsufficientStorage)
				return
			}
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.events = append(w.events, list.Items...)
	}))
	t.Cleanup(server.Close)
	w.Config = kit.WriteFile(t, "webhook.kubeconfig", fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: a,
clusters: [{name: a, cluster: {server: %q}}], contexts: [{name: a, context: {cluster: a}}]}`, server.URL))
	return w
}

// of returns the events that the webhook has received about a request.
func (w *auditWebhook) of(id string) []kit.AuditEvent {
	w.mu.Lock()
	defer w.mu.Unlock()
	var events []kit.AuditEvent
	for _, e := range w.events {
		if e.AuditID == id {
			events = append(events, e)
		}
	}
	return events
}

// Task "Auditing", section "Audit backends".
func TestAuditBackends(t *testing.T) {
	webhook := newAuditWebhook(t, "lost")
	kit.Prove(t, []string{
		"--audit-policy-file", kit.WriteFile(t, "policy.yaml", bodiesPolicy), "--audit-log-path", "-",
		"--audit-webhook-config-file", webhook.Config, "--audit-webhook-mode=blocking-strict", "--audit-webhook-initial-backoff=1ms",
		"--audit-webhook-truncate-enabled", "--audit-webhook-truncate-max-event-size=600000",
	},
		kit.Promise{Statement: "a webhook receives lists of events", Proof: func(t *testing.T, c *kit.Cluster) {
			id := string(uuid.NewUUID())
			c.Send(t, http.MethodPost, c.Path("v1", "configmaps"), kit.Header{"Audit-ID", id}, kit.ConfigMap("a", map[string]string{"key": "value"})).Created(t)
			harness.Eventually(t, "the webhook has the last event", func() bool { return len(webhook.of(id)) == 2 })
			events := webhook.of(id)
			wantStages(t, events, "RequestReceived", "ResponseComplete")
			if kit.ObjectOf(events[1].RequestObject)["kind"] != "ConfigMap" || events[1].ResponseObject["kind"] != "ConfigMap" {
				t.Errorf("the event is %+v", events[1])
			}
		}},
		kit.Promise{Statement: "an event that is too large is sent without bodies", Proof: func(t *testing.T, c *kit.Cluster) {
			id := string(uuid.NewUUID())
			c.Send(t, http.MethodPost, c.Path("v1", "configmaps"), kit.Header{"Audit-ID", id}, kit.ConfigMap("a", map[string]string{"key": strings.Repeat("x", 500<<10)})).Created(t)
			harness.Eventually(t, "the webhook has the last event", func() bool { return len(webhook.of(id)) == 2 })
			e := webhook.of(id)[1]
			kit.WantAnnotations(t, e, map[string]string{"audit.k8s.io/truncated": "true"})
			if e.RequestObject != nil || e.ResponseObject != nil {
				t.Error("the event has bodies")
			}
		}},
		kit.Promise{Statement: "in mode blocking-strict, a request that can't be recorded is not executed", Proof: func(t *testing.T, c *kit.Cluster) {
			c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("kept", nil)).Created(t)
			c.Post(t, c.Path("v1", "configmaps")+"?fieldManager=lost", kit.ConfigMap("lost", nil)).Want(t, http.StatusInternalServerError)
			c.Get(t, c.Path("v1", "configmaps")+"/lost?pretty=lost").Want(t, http.StatusInternalServerError)
			if names := c.Get(t, c.Path("v1", "configmaps")+"?fieldSelector=metadata.name!=kube-root-ca.crt").Names(t); len(names) != 1 || names[0] != "kept" {
				t.Errorf("the list has %v", names)
			}
		}},
		kit.Promise{Statement: "the path - means standard output", Proof: func(t *testing.T, c *kit.Cluster) {
			id := string(uuid.NewUUID())
			c.Send(t, http.MethodGet, c.Path("v1", "configmaps"), kit.Header{"Audit-ID", id}, nil).OK(t)
			harness.Eventually(t, "it is written", func() bool { return len(kit.AuditEvents(t, []byte(c.Server.Stdout(t)), id)) == 2 })
		}},
	)
}

// TestAuditRotation fills log files, and therefore has its own log.
func TestAuditRotation(t *testing.T) {
	dir := t.TempDir()
	kit.Prove(t, []string{
		"--audit-policy-file", kit.WriteFile(t, "policy.yaml", bodiesPolicy),
		"--audit-log-path", filepath.Join(dir, "audit.log"), "--audit-log-maxsize=1", "--audit-log-maxbackup=2", "--audit-log-compress",
	}, kit.Promise{Statement: "a full log is rotated and compressed, and the oldest ones are removed", Proof: func(t *testing.T, c *kit.Cluster) {
		fill := kit.ConfigMap("a", map[string]string{"key": strings.Repeat("x", 450<<10)}) // twice in an event: a megabyte holds one
		rotated := func() []string {
			c.Post(t, c.Path("v1", "configmaps")+"?dryRun=All", fill).Created(t)
			files := kit.Must(filepath.Glob(filepath.Join(dir, "audit-*.log.gz")))(t)
			return files
		}
		first := ""
		harness.Eventually(t, "the log is rotated", func() bool {
			for _, first = range rotated() {
				return true
			}
			return false
		})
		harness.Eventually(t, "it is compressed", func() bool {
			text := kit.Must(os.ReadFile(first))(t)
			if unzip, err := gzip.NewReader(bytes.NewReader(text)); err == nil {
				text, err = io.ReadAll(unzip)
				return err == nil && bytes.Contains(text, []byte(`"kind":"Event"`))
			}
			return false
		})
		harness.Eventually(t, "the oldest is removed", func() bool {
			files := rotated()
			_, err := os.Stat(first)
			return len(files) <= 2 && os.IsNotExist(err)
		})
	}})
}

// TestAuditBatches stops servers to check that they flush their batches.
func TestAuditBatches(t *testing.T) {
	kit.OnSQLite(t, func(t *testing.T, engine harness.Engine) {
		path := filepath.Join(t.TempDir(), "audit.log")
		webhook := newAuditWebhook(t, "")
		server := sqube.Start(t, sqube.Options{Datastore: engine.Datastore, Args: []string{
			"--audit-policy-file", kit.WriteFile(t, "policy.yaml", bodiesPolicy),
			"--audit-log-path", path, "--audit-log-format=legacy",
			"--audit-log-mode=batch", "--audit-log-batch-max-size=100000", "--audit-log-batch-max-wait=1h",
			"--audit-webhook-config-file", webhook.Config, "--audit-webhook-batch-max-wait=1h",
		}})
		c := kit.NewClient(t, server.Config(t))
		id := string(uuid.NewUUID())
		c.Send(t, http.MethodGet, "/api/v1/namespaces/default/configmaps", kit.Header{"Audit-ID", id}, nil).OK(t)
		if text, err := os.ReadFile(path); err != nil || len(text) > 0 || len(webhook.of(id)) > 0 {
			t.Errorf("written before the batch is full: %q, %v, %v", text, webhook.of(id), err)
		}
		server.Stop(t)
		text := kit.Must(os.ReadFile(path))(t)
		line := regexp.MustCompile(`(?m)^\S+ AUDIT: id="` + id + `" stage="ResponseComplete" ip="127.0.0.1" method="list" user="kubernetes-admin" .*` +
			`namespace="default" uri="/api/v1/namespaces/default/configmaps" response="200"$`)
		if !line.Match(text) {
			t.Errorf("the log has\n%s", text)
		}
		wantStages(t, webhook.of(id), "RequestReceived", "ResponseComplete")
	})
}

func TestAuditPolicyFaults(t *testing.T) {
	t.Parallel()
	const head = "apiVersion: audit.k8s.io/v1\nkind: Policy\n"
	for policy, want := range map[string]string{
		"kind: Policy": "unknown group version field",
		"apiVersion: audit.k8s.io/v2\nkind: Policy": "failed decoding",
		head:                                  "loaded illegal policy with 0 rules",
		head + "rules: [{level: Everything}]": `rules[0].level: Unsupported value: "Everything"`,
		head + "rules: [{level: Metadata, omitStages: [Never]}]":           `rules[0].omitStages[0]: Invalid value: "Never"`,
		head + "rules: [{level: Metadata, nonResourceURLs: ['*.html']}]":   `rules[0].nonResourceURLs[0]: Invalid value: "*.html"`,
		head + "rules: [{level: Metadata, resources: [{group: apps/v1}]}]": `rules[0].resources.group: Invalid value: "apps/v1"`,
	} {
		kit.RefusesToStart(t, "--audit-policy-file: ", want, "--audit-policy-file", kit.WriteFile(t, "policy.yaml", policy))
	}
}
