package encryption

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

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// isHealthy tests the health checks of the KMS plugins. If one is of version 1, each has its own.
func (e *encrypted) isHealthy(t *testing.T) {
	t.Run("each KMS plugin has a health check in /healthz and /readyz, but not in /livez", func(t *testing.T) {
		for _, check := range []string{"kms-provider-0", "kms-provider-1"} {
			e.Get(t, "/healthz/"+check).OK(t)
			e.Get(t, "/readyz/"+check).OK(t)
			e.Get(t, "/livez/"+check).Want(t, http.StatusNotFound)
		}
	})
}

// "Configure automatic reloading", and the health of plugins with it.
func TestEncryptionReload(t *testing.T) {
	kit.OnSQLite(t, func(t *testing.T, engine harness.Engine) {
		kms := newKMS(t, "key-1")
		file := kit.NewEncryptionFile(t)
		templates := kit.EncryptionRule("podtemplates", kmsProvider("v2", "plugin", kms.endpoint))
		file.Write(t, kit.EncryptionConfig(kit.EncryptionRule("secrets", kit.AESCBC("old")), templates))
		server := sqube.Launch(t, sqube.Options{Datastore: engine.Datastore,
			Args: []string{"--encryption-provider-config", file.Path, "--encryption-provider-config-automatic-reload"}})
		t.Run("a missing KMS plugin fails its health check and /readyz, but not /livez", func(t *testing.T) {
			harness.Eventually(t, "the server has created its files", func() bool {
				_, err := os.Stat(server.Kubeconfig)
				return err == nil
			})
			early := kit.NewClient(t, server.Config(t))
			harness.Eventually(t, "the server is alive", func() bool {
				response, err := early.HTTP.Get(early.URL + "/livez")
				if err != nil {
					return false // it does not listen yet
				}
				response.Body.Close()
				return response.StatusCode == http.StatusOK
			})
			for _, path := range []string{"/healthz/kms-providers", "/readyz/kms-providers", "/healthz", "/readyz"} {
				early.Get(t, path).Want(t, http.StatusInternalServerError)
			}
		})
		kms.start(t)
		t.Run("a server becomes ready when its KMS plugin starts", func(t *testing.T) { server.WaitReady(t) })
		c := kit.NewCluster(t, server.Config(t), server, 0)
		stored := kit.Rows{DB: harness.OpenDatabase(t, engine)}
		secret := kit.Manifest("{apiVersion: v1, kind: Secret, metadata: {name: a}}")
		c.Post(t, c.Path("v1", "secrets"), secret).Created(t)
		c.Post(t, c.Path("v1", "podtemplates"), kit.PodTemplate("a")).Created(t)
		stored.Live(t, "secrets", c.Namespace, "a").EncryptedBy(t, "k8s:enc:aescbc:v1:old:")
		stored.Live(t, "podtemplates", c.Namespace, "a").EncryptedBy(t, "k8s:enc:kms:v2:plugin:")

		t.Run("all KMS plugins have the health check kms-providers", func(t *testing.T) {
			c.Get(t, "/healthz/kms-providers").OK(t)
			c.Get(t, "/readyz/kms-providers").OK(t)
			c.Get(t, "/livez/kms-providers").Want(t, http.StatusNotFound)
		})
		t.Run("an invalid change of the file is ignored and counted", func(t *testing.T) {
			file.Write(t, kit.EncryptionConfig(kit.EncryptionRule("secrets", "aescbc: {keys: [{name: new, secret: c2hvcnQ=}]}"), templates))
			harness.Eventually(t, "the failure is counted", func() bool { return counted(t, c, `automatic_reloads_total{.*status="failure"}`) })
			c.Put(t, c.Path("v1", "secrets", "a"), kit.With(secret, "1", "metadata", "labels", "l")).OK(t)
			stored.Live(t, "secrets", c.Namespace, "a").EncryptedBy(t, "k8s:enc:aescbc:v1:old:")
		})
		t.Run("a changed file is used without a restart", func(t *testing.T) {
			file.Write(t, kit.EncryptionConfig(kit.EncryptionRule("secrets", kit.AESGCM("new"), kit.AESCBC("old")), templates))
			harness.Eventually(t, "the reload is counted", func() bool { return counted(t, c, `automatic_reloads_total{.*status="success"}`) })
			c.Put(t, c.Path("v1", "secrets", "a"), kit.With(secret, "1", "metadata", "labels", "l")).OK(t)
			stored.Live(t, "secrets", c.Namespace, "a").EncryptedBy(t, "k8s:enc:aesgcm:v1:new:")
		})
		t.Run("objects can still be written and read for some minutes without the plugin", func(t *testing.T) {
			kms.server.Close()
			c.Post(t, c.Path("v1", "podtemplates"), kit.PodTemplate("b")).Created(t)
			c.Get(t, c.Path("v1", "podtemplates", "b")).OK(t)
		})
	})
}

// counted reports whether a metric of the reload is greater than 0.
func counted(t *testing.T, c *kit.Cluster, metric string) bool {
	t.Helper()
	return regexp.MustCompile(`apiserver_encryption_config_controller_` + metric + ` [1-9]`).Match(c.Get(t, "/metrics").Body)
}

// Invalid configurations.
func TestEncryptionFaults(t *testing.T) {
	t.Parallel()
	for _, fault := range []struct{ statement, text, want string }{
		{"a missing file", "", "no such file or directory"},
		{"text that is not a configuration", "secrets: true", "Object 'Kind' is missing"},
		{"an unknown field", "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nsecrets: []", `unknown field "secrets"`},
		{"an empty configuration", kit.EncryptionConfig(), "resources: Required value"},
		{"an unknown provider", kit.EncryptionConfig(kit.EncryptionRule("secrets", "rot13: {}")), `unknown field "resources[0].providers[0].rot13"`},
		{"an empty provider", kit.EncryptionConfig(kit.EncryptionRule("secrets", "")), "provider does not contain any of the expected providers"},
		{"a key of a wrong length", kit.EncryptionConfig(kit.EncryptionRule("secrets", "aescbc: {keys: [{name: k, secret: c2hvcnQ=}]}")), "resources[0].providers[0].aescbc.keys[0].secret: Invalid value"},
		{"a rule after a wildcard that includes it", kit.EncryptionConfig(kit.EncryptionRule("*.*", kit.IdentityProvider), kit.EncryptionRule("secrets", kit.AESCBC("k"))), `resource "secrets" is masked by earlier rule "*.*"`},
		{"KMS of version 1 without its gate", kit.EncryptionConfig(kit.EncryptionRule("secrets", kmsProvider("v1", "plugin", "unix:///nowhere"))), "Set --feature-gates=KMSv1=true"},
		{"an endpoint that is not a socket", kit.EncryptionConfig(kit.EncryptionRule("secrets", kmsProvider("v2", "plugin", "tcp://127.0.0.1:1"))), "resources[0].providers[0].kms.endpoint: Invalid value"},
		{"two plugins of one name", kit.EncryptionConfig(kit.EncryptionRule("secrets", kmsProvider("v2", "plugin", "unix:///a")), kit.EncryptionRule("configmaps", kmsProvider("v2", "plugin", "unix:///b"))), "must be unique"},
	} {
		t.Run(fault.statement+" is rejected at startup with an error that names the flag", func(t *testing.T) {
			t.Parallel()
			file := kit.NewEncryptionFile(t)
			if fault.text != "" {
				file.Write(t, fault.text)
			}
			dataDir := filepath.Join(t.TempDir(), "data")
			var stderr bytes.Buffer
			command := exec.CommandContext(t.Context(), sqube.Binary(t), "serve", "--data-dir", dataDir, "--encryption-provider-config", file.Path)
			command.Stderr = &stderr
			if err := command.Run(); err == nil {
				t.Error("it ended without an error")
			}
			want := fmt.Sprintf("--encryption-provider-config %s: ", file.Path)
			if text := stderr.String(); !strings.Contains(text, want) || !strings.Contains(text, fault.want) || strings.Count(text, "\n") != 1 {
				t.Errorf("the error is %s", text)
			}
		})
	}
}
