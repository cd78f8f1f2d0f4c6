package concepts

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// isHealthy looks at the health checks of the KMS plugins. Where one is of version 1 each has its own.
func (e *encrypted) isHealthy(t *testing.T) {
	t.Run("each KMS plugin has a health check of /healthz and /readyz, and none of /livez", func(t *testing.T) {
		for _, check := range []string{"kms-provider-0", "kms-provider-1"} {
			e.get(t, "/healthz/"+check).want(t, http.StatusOK)
			e.get(t, "/readyz/"+check).want(t, http.StatusOK)
			e.get(t, "/livez/"+check).want(t, http.StatusNotFound)
		}
	})
}

// "Configure automatic reloading", and the health of plugins with it.
func TestEncryptionReload(t *testing.T) {
	engines(t, func(t *testing.T, engine harness.Engine) {
		kms := newKMS(t, "key-1")
		file := encryptionFile(t)
		templates := encrypts("podtemplates", kmsProvider("v2", "plugin", kms.endpoint))
		file.write(t, encryptionOf(encrypts("secrets", aescbc("old")), templates))
		server := sqube.Launch(t, sqube.Options{Datastore: engine.Datastore,
			Args: []string{"--encryption-provider-config", file.path, "--encryption-provider-config-automatic-reload"}})
		t.Run("a KMS plugin that is not there fails its health check and /readyz, but not /livez", func(t *testing.T) {
			eventually(t, "the server has made its files", func() bool {
				_, err := os.Stat(server.Kubeconfig)
				return err == nil
			})
			early := newClient(t, server.Config(t))
			eventually(t, "the server is alive", func() bool {
				response, err := early.http.Get(early.url + "/livez")
				if err != nil {
					return false // it does not listen yet
				}
				response.Body.Close()
				return response.StatusCode == http.StatusOK
			})
			for _, path := range []string{"/healthz/kms-providers", "/readyz/kms-providers", "/healthz", "/readyz"} {
				early.get(t, path).want(t, http.StatusInternalServerError)
			}
		})
		kms.start(t)
		t.Run("a server becomes ready when its KMS plugin comes", func(t *testing.T) { server.WaitReady(t) })
		c := newCluster(t, server.Config(t), server, 0)
		stored := rows{harness.OpenDatabase(t, engine)}
		secret := manifest("{apiVersion: v1, kind: Secret, metadata: {name: a}}")
		c.post(t, c.path("v1", "secrets"), secret).want(t, http.StatusCreated)
		c.post(t, c.path("v1", "podtemplates"), inert("a")).want(t, http.StatusCreated)
		stored.live(t, "secrets", c.namespace, "a").encryptedBy(t, "k8s:enc:aescbc:v1:old:")
		stored.live(t, "podtemplates", c.namespace, "a").encryptedBy(t, "k8s:enc:kms:v2:plugin:")

		t.Run("all KMS plugins have the health check kms-providers", func(t *testing.T) {
			c.get(t, "/healthz/kms-providers").want(t, http.StatusOK)
			c.get(t, "/readyz/kms-providers").want(t, http.StatusOK)
			c.get(t, "/livez/kms-providers").want(t, http.StatusNotFound)
		})
		t.Run("a changed file that is wrong is not used, and counted", func(t *testing.T) {
			file.write(t, encryptionOf(encrypts("secrets", "aescbc: {keys: [{name: new, secret: c2hvcnQ=}]}"), templates))
			eventually(t, "the failure is counted", func() bool { return c.counted(t, `automatic_reloads_total{.*status="failure"}`) })
			c.put(t, c.path("v1", "secrets", "a"), with(secret, "1", "metadata", "labels", "l")).want(t, http.StatusOK)
			stored.live(t, "secrets", c.namespace, "a").encryptedBy(t, "k8s:enc:aescbc:v1:old:")
		})
		t.Run("a changed file is used without a restart", func(t *testing.T) {
			file.write(t, encryptionOf(encrypts("secrets", aesgcm("new"), aescbc("old")), templates))
			eventually(t, "the reload is counted", func() bool { return c.counted(t, `automatic_reloads_total{.*status="success"}`) })
			c.put(t, c.path("v1", "secrets", "a"), with(secret, "1", "metadata", "labels", "l")).want(t, http.StatusOK)
			stored.live(t, "secrets", c.namespace, "a").encryptedBy(t, "k8s:enc:aesgcm:v1:new:")
		})
		t.Run("objects are still written and read for some minutes while the plugin is gone", func(t *testing.T) {
			kms.server.Close()
			c.post(t, c.path("v1", "podtemplates"), inert("b")).want(t, http.StatusCreated)
			c.get(t, c.path("v1", "podtemplates", "b")).want(t, http.StatusOK)
		})
	})
}

// counted says whether a metric of the reload is more than 0.
func (c *cluster) counted(t *testing.T, metric string) bool {
	t.Helper()
	return regexp.MustCompile(`apiserver_encryption_config_controller_` + metric + ` [1-9]`).Match(c.get(t, "/metrics").Body)
}

// The faults of a configuration.
func TestEncryptionFaults(t *testing.T) {
	t.Parallel()
	for _, fault := range []struct{ statement, text, want string }{
		{"a file that is missing", "", "no such file or directory"},
		{"text that is no configuration", "secrets: true", "Object 'Kind' is missing"},
		{"an unknown field", "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nsecrets: []", `unknown field "secrets"`},
		{"a configuration of nothing", encryptionOf(), "resources: Required value"},
		{"an unknown provider", encryptionOf(encrypts("secrets", "rot13: {}")), `unknown field "resources[0].providers[0].rot13"`},
		{"a provider that is none", encryptionOf(encrypts("secrets", "")), "provider does not contain any of the expected providers"},
		{"a key of a wrong length", encryptionOf(encrypts("secrets", "aescbc: {keys: [{name: k, secret: c2hvcnQ=}]}")), "resources[0].providers[0].aescbc.keys[0].secret: Invalid value"},
		{"a rule behind one that has it all", encryptionOf(encrypts("*.*", identityProvider), encrypts("secrets", aescbc("k"))), `resource "secrets" is masked by earlier rule "*.*"`},
		{"KMS of version 1 while its gate is closed", encryptionOf(encrypts("secrets", kmsProvider("v1", "plugin", "unix:///nowhere"))), "Set --feature-gates=KMSv1=true"},
		{"an endpoint that is no socket", encryptionOf(encrypts("secrets", kmsProvider("v2", "plugin", "tcp://127.0.0.1:1"))), "resources[0].providers[0].kms.endpoint: Invalid value"},
		{"two plugins of one name", encryptionOf(encrypts("secrets", kmsProvider("v2", "plugin", "unix:///a")), encrypts("configmaps", kmsProvider("v2", "plugin", "unix:///b"))), "must be unique"},
	} {
		t.Run(fault.statement+" is refused at the start by an error that names the flag", func(t *testing.T) {
			t.Parallel()
			file := encryptionFile(t)
			if fault.text != "" {
				file.write(t, fault.text)
			}
			dataDir := filepath.Join(t.TempDir(), "data")
			var stderr bytes.Buffer
			command := exec.CommandContext(t.Context(), sqube.Binary(t), "serve", "--data-dir", dataDir, "--encryption-provider-config", file.path)
			command.Stderr = &stderr
			if err := command.Run(); err == nil {
				t.Error("it ended without an error")
			}
			want := fmt.Sprintf("--encryption-provider-config %s: ", file.path)
			if text := stderr.String(); !strings.Contains(text, want) || !strings.Contains(text, fault.want) || strings.Count(text, "\n") != 1 {
				t.Errorf("the error is %s", text)
			}
		})
	}
}
