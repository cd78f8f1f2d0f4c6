package deploy

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestChartServes runs the command of the chart's Pods twice on one Postgres, with the files and variables that a kubelet would
// provide, and sends the requests of probes and Prometheus.
func TestChartServes(t *testing.T) {
	t.Parallel()
	dsn := harness.Postgres(t)
	manifests, err := exec.Command(sqube.Program(t, "helm"), "template", "sqube", chart, "-n", "sqube", "-f", "testdata/least.yaml",
		"--set-literal", "datastore.dsn="+dsn, "--set", "metrics.token=prometheus-token", "--set", "tls.names={api.example.com}",
		"--set", "config.retention-rows=10000000", "--set", "config.feature-gates.CBORServingAndStorage=false").Output()
	harness.Must(t, err)
	release := decode(t, manifests)
	container := release.deployment.Spec.Template.Spec.Containers[0]
	var authorities [][]byte
	var variables []string
	for range 2 {
		pod, env := release.start(t)
		variables = env
		config := pod.Config(t)
		authorities = append(authorities, config.CAData)
		for _, probe := range []*corev1.Probe{container.StartupProbe, container.ReadinessProbe, container.LivenessProbe} {
			// The authorizer hears of the default roles after they are made.
			harness.Eventually(t, probe.HTTPGet.Path+" returns 200", func() bool {
				code, _ := ask(t, pod, config, probe.HTTPGet.Path, "")
				return code == http.StatusOK
			})
		}
		harness.Eventually(t, "/metrics returns 200 for Prometheus", func() bool {
			code, text := ask(t, pod, config, "/metrics", "prometheus-token")
			if code == http.StatusOK && !strings.Contains(text, "\nsqube_store_revision ") {
				t.Fatalf("for Prometheus, /metrics returns\n%.1000s", text)
			}
			return code == http.StatusOK
		})
		if code, _ := ask(t, pod, config, "/api/v1/secrets", "prometheus-token"); code != http.StatusForbidden {
			t.Errorf("for Prometheus, /api/v1/secrets returns %d", code)
		}
		// As in NOTES.txt.
		command := exec.Command(sqube.Binary(t), "kubeconfig", "--user", "you", "--group", "system:masters", "--lifetime", "8h", "--server", pod.URL)
		command.Env = env
		kubeconfig, err := command.Output()
		harness.Must(t, err)
		file := filepath.Join(t.TempDir(), "kubeconfig")
		harness.Must(t, os.WriteFile(file, kubeconfig, 0o600))
		c := cluster{env: sqube.KubectlEnv(t, file)}
		if who := c.kubectl(t, "", "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"); who != "you" {
			t.Errorf("the administrator is %s", who)
		}
	}
	if string(authorities[0]) != string(authorities[1]) {
		t.Error("the servers do not share their authority")
	}

	withoutDSN := exec.Command(sqube.Binary(t), "serve", "--data-dir", t.TempDir(), "--bind-address", "127.0.0.1")
	withoutDSN.Env = append(variables, "SQUBE_DATASTORE=", "PGHOST=/nowhere")
	if out, err := withoutDSN.CombinedOutput(); err == nil || !strings.Contains(string(out), "is Postgres running there") {
		t.Errorf("with an empty DSN, sqube (error %v) prints\n%s", err, out)
	}
}

// release is the part of a rendered chart that a Pod needs. Files are the texts in Secrets and ConfigMaps, by name.
type release struct {
	deployment appsv1.Deployment
	files      map[string]map[string]string
}

func decode(t *testing.T, manifests []byte) *release {
	t.Helper()
	r := &release{files: map[string]map[string]string{}}
	documents := yaml.NewYAMLToJSONDecoder(strings.NewReader(string(manifests)))
	for {
		var raw struct {
			Kind              string `json:"kind"`
			metav1.ObjectMeta `json:"metadata"`
			Data              map[string]string      `json:"data"`
			StringData        map[string]string      `json:"stringData"`
			Spec              *appsv1.DeploymentSpec `json:"spec"`
		}
		err := documents.Decode(&raw)
		if err == io.EOF {
			return r
		}
		harness.Must(t, err)
		switch raw.Kind {
		case "Deployment":
			r.deployment.Spec = *raw.Spec
		case "Secret":
			r.files["secret "+raw.Name] = raw.StringData
		case "ConfigMap":
			r.files["configMap "+raw.Name] = raw.Data
		}
	}
}

// start runs the container's command as a process until the test ends. It also returns the process' environment.
func (r *release) start(t *testing.T) (*sqube.Server, []string) {
	t.Helper()
	pod := r.deployment.Spec.Template.Spec
	container := pod.Containers[0]
	root := t.TempDir()
	var paths []string // in the container, each followed by that on this machine
	for _, mount := range container.VolumeMounts {
		paths = append(paths, mount.MountPath, root+mount.MountPath)
	}
	here := strings.NewReplacer(paths...)
	for _, mount := range container.VolumeMounts {
		r.fill(t, pod.Volumes, mount.Name, root+mount.MountPath, here)
	}
	var env []string
	for _, variable := range container.Env {
		value := here.Replace(variable.Value)
		if variable.ValueFrom != nil {
			ref, there := variable.ValueFrom.SecretKeyRef, false
			if value, there = r.file(t, "secret "+ref.Name, ref.Key, ref.Optional); !there {
				continue
			}
		}
		env = append(env, variable.Name+"="+value)
	}
	return sqube.Start(t, sqube.Options{DataDir: filepath.Join(root, "data"), Prepare: func(cmd *exec.Cmd) {
		address := cmd.Args[slices.Index(cmd.Args, "--bind-address"):]
		cmd.Args = slices.Concat(cmd.Args[:1], container.Args, address)
		cmd.Env = env
	}}), env
}

// fill creates a directory with the content of the volume, with paths replaced by those on this machine.
func (r *release) fill(t *testing.T, volumes []corev1.Volume, name, path string, here *strings.Replacer) {
	t.Helper()
	harness.Must(t, os.MkdirAll(path, 0o700))
	volume := volumes[slices.IndexFunc(volumes, func(v corev1.Volume) bool { return v.Name == name })]
	texts := map[string]string{}
	switch {
	case volume.ConfigMap != nil:
		texts = r.files["configMap "+volume.ConfigMap.Name]
	case volume.Secret != nil:
		for _, item := range volume.Secret.Items {
			if text, there := r.file(t, "secret "+volume.Secret.SecretName, item.Key, volume.Secret.Optional); there {
				texts[item.Path] = text
			}
		}
	}
	for file, text := range texts {
		harness.Must(t, os.WriteFile(filepath.Join(path, file), []byte(here.Replace(text)), 0o600))
	}
}

// file returns a text, and whether it exists; it must exist unless it is optional.
func (r *release) file(t *testing.T, object, key string, optional *bool) (text string, there bool) {
	t.Helper()
	if text, there = r.files[object][key]; !there && (optional == nil || !*optional) {
		t.Fatalf("there is no %s with the key %s", object, key)
	}
	return text, there
}

// ask requests a path of a server under its Service's name, with a token if it is not "".
func ask(t *testing.T, pod *sqube.Server, config *rest.Config, path, token string) (int, string) {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(config.CAData) {
		t.Fatalf("no certificate in %s", base64.StdEncoding.EncodeToString(config.CAData))
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "sqube.sqube.svc"}}}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, pod.URL+path, nil)
	harness.Must(t, err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	return harness.Do(t, client, request)
}
