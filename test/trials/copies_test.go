package trials

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/sqube/sqube/server/servertest"
	"github.com/sqube/sqube/server/trial"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// backup returns a backup of a new cluster.
func backup(t *testing.T, fill func(*servertest.Server)) string {
	t.Helper()
	s := servertest.Run(t, servertest.Options{})
	fill(s)
	file := filepath.Join(t.TempDir(), "backup.db")
	harness.Must(t, s.Save(file))
	return file
}

const settings = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
`

// TestOldCopy tries a command on a backup of a cluster as it was long ago: certificates are of the time outside.
func TestOldCopy(t *testing.T) {
	t.Parallel()
	file := backup(t, func(*servertest.Server) {})
	db := harness.OpenDatabase(t, harness.Engine{Datastore: "sqlite://" + file})
	_, err := db.Exec("UPDATE log SET written_at = $1", time.Now().AddDate(-3, 0, 0).UnixMilli())
	harness.Must(t, err)
	harness.Must(t, db.Close())
	r := try(t, "--from", file, "create", "configmap", "settings")
	r.ends(t, trial.AtRest)
	if !r.changes("ConfigMap", "settings") || time.Since(r.Tried.Begin) < 24*time.Hour {
		t.Errorf("on an old copy, a command leads to %+v", r.Result)
	}
}

// TestWebhooks tries a change about which a webhook must be asked: it is named, and with --outbound it is asked.
func TestWebhooks(t *testing.T) {
	t.Parallel()
	var asked, dry atomic.Int32
	hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
			return
		}
		asked.Add(1)
		if ptr.Deref(review.Request.DryRun, false) {
			dry.Add(1)
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{Message: "no settings today", Code: http.StatusForbidden}}
		_ = json.NewEncoder(w).Encode(&review)
	}))
	defer hook.Close()
	file := backup(t, func(s *servertest.Server) {
		configuration := &registrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "guard"}, Webhooks: []registrationv1.ValidatingWebhook{{
			Name: "settings.example.com", SideEffects: ptr.To(registrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			ClientConfig: registrationv1.WebhookClientConfig{
				URL: &hook.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw}),
			},
			MatchConditions: []registrationv1.MatchCondition{{Name: "settings", Expression: "object.metadata.name == 'settings'"}},
			Rules: []registrationv1.RuleWithOperations{{
				Operations: []registrationv1.OperationType{registrationv1.Create},
				Rule:       registrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
		}}}
		_, err := kubernetes.NewForConfigOrDie(s.Config).AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), configuration, metav1.CreateOptions{})
		harness.Must(t, err)
	})
	change := write(t, settings+"---"+strings.ReplaceAll(settings, "settings", "others"))
	r := try(t, "--from", file, "-f", change)
	r.ends(t, trial.AtRest)
	want := trial.Webhook{Name: "guard/settings.example.com", Times: 1}
	if len(r.Webhooks) != 1 || r.Webhooks[0] != want || asked.Load() != 0 {
		t.Errorf("without --outbound, the webhooks are %+v, and it was asked %d times", r.Webhooks, asked.Load())
	}
	r = try(t, "--from", file, "--outbound", strings.TrimPrefix(hook.URL, "https://"), "-f", change)
	r.ends(t, trial.RefusedChange)
	want.Called = true
	if len(r.Webhooks) != 1 || r.Webhooks[0] != want || asked.Load() != 1 || dry.Load() != 1 || !strings.Contains(r.Refused[0].Message, "no settings today") {
		t.Errorf("with --outbound, the webhooks are %+v, it was asked %d times, %d as a dry run, and refused are %+v", r.Webhooks, asked.Load(), dry.Load(), r.Refused)
	}
}

// TestBeside tries a change to which a controller outside reacts. What it does without the change is left out.
func TestBeside(t *testing.T) {
	t.Parallel()
	file := backup(t, func(*servertest.Server) {})
	const controller = `kubectl create configmap from-begin; kubectl get configmaps -w -o name | while read name; do [ $name != configmap/settings ] || kubectl create configmap from-controller; done`
	r := try(t, "--from", file, "--with", controller, "-f", write(t, settings))
	r.ends(t, trial.AtRest)
	if !r.changes("ConfigMap", "settings") || !r.changes("ConfigMap", "from-controller") || r.changes("ConfigMap", "from-begin") {
		t.Errorf("with a controller, a change leads to %+v", r.Result)
	}
	r = try(t, "--from", file, "--with", "exit 3", "-f", write(t, settings))
	r.ends(t, trial.NotAtRest)
	if !strings.Contains(strings.Join(r.Reasons, " "), "exit status 3") {
		t.Errorf("with one that fails, the reasons are %q", r.Reasons)
	}
}

// TestInterrupt interrupts a trial whose command waits: nothing is left behind.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	file, folder, trace := backup(t, func(*servertest.Server) {}), t.TempDir(), filepath.Join(t.TempDir(), "trace")
	p := sqube.Command(t, []string{"try", "--from", file, "--for", "1000h", "--", "sh", "-c", `trap "" INT; echo $$ >` + trace + `; while true; do sleep 1; done`}, inFolder(t, folder))
	var child string
	harness.Eventually(t, "the command runs", func() bool {
		text, _ := os.ReadFile(trace)
		child = strings.TrimSpace(string(text))
		return child != ""
	})
	harness.Must(t, p.Signal(syscall.SIGINT))
	if code := p.Code(t); code != 2 {
		t.Errorf("it ends with %d: %s", code, p.Log(t))
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("it leaves %v behind, %v", left, err)
	}
	if running(child) {
		t.Error("the command still runs")
	}
}

// running reports whether there is a process with an id.
func running(id string) bool {
	state, err := os.ReadFile("/proc/" + id + "/stat")
	return err == nil && !strings.Contains(string(state), ") Z ")
}
