package serve

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// configFile writes a configuration file and returns its path.
func configFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	harness.Must(t, os.WriteFile(path, []byte(text), 0o640))
	return path
}

// TestSettings starts a server with settings from a file, the environment and the command line, which disagree on --retention
// or --event-ttl. Then other commands find its state with the same file.
func TestSettings(t *testing.T) {
	t.Parallel()
	dir, port := t.TempDir(), freePort(t)
	config := configFile(t, fmt.Sprintf(`# What is under another name than the flag's is an error.
data-dir: %s/data
datastore: %s
bind-address: 127.0.0.1
secure-port: 1
tls-san: [a.example, b.example]
tls_cipher_suites:
- TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
- TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
feature-gates: {CBORServingAndStorage: false, WatchList: true}
runtime-config:
  batch/v1: true
  autoscaling/v2: "false"
kubelet-preferred-address-types: []
retention: 10m
event-ttl: 10m
cache-size: 32Mi
watch-cache: false
v: 1
`, dir, harness.SQLite(t)))
	environment := env("SQUBE_CONFIG="+config, "SQUBE_SECURE_PORT="+port, "SQUBE_RETENTION=20m", "SQUBE_EVENT_TTL=20m",
		"SQUBE_API_AUDIENCES=a,b", "SQUBE_CACHE_SIZE=",
		// What a kubelet sets for a Service named sqube.
		"SQUBE_SERVICE_HOST=10.0.0.9", "SQUBE_SERVICE_PORT=6443", "SQUBE_SERVICE_PORT_HTTPS=6443", "SQUBE_PORT=tcp://10.0.0.9:6443",
		"SQUBE_PORT_6443_TCP=tcp://10.0.0.9:6443", "SQUBE_PORT_6443_TCP_PROTO=tcp", "SQUBE_PORT_6443_TCP_PORT=6443",
		"SQUBE_PORT_6443_TCP_ADDR=10.0.0.9", "SQUBE_VERSION=1")
	s := &sqube.Server{
		Process: sqube.Command(t, []string{"serve", "--retention=30m"}, environment),
		URL:     "https://127.0.0.1:" + port, Kubeconfig: filepath.Join(dir, "data", "admin.kubeconfig"),
	}
	s.WaitReady(t)
	settle(t, s)
	flags := flagz(t, client(t, s.Kubeconfig))
	for name, want := range map[string]string{
		"retention": "30m0s", "event-ttl": "20m0s", "cache-size": "32Mi", "tls-san": "[a.example,b.example]", "v": "1",
		"feature-gates": "CBORServingAndStorage=false,WatchList=true", "runtime-config": "autoscaling/v2=false,batch/v1=true",
		"api-audiences": "[a,b]", "kubelet-preferred-address-types": "[]",
		"tls-cipher-suites": "[TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]",
	} {
		if flags[name] != want {
			t.Errorf("--%s is %q, want %q", name, flags[name], want)
		}
	}
	if log := s.Log(t); !strings.Contains(log, "flag=--watch-cache ") {
		t.Error("the log does not mention a setting without effect")
	}

	for i, args := range [][]string{
		{"migrate", "status"}, {"check"}, {"history", "services", "kubernetes"}, {"show", "services", "kubernetes"},
		{"backup", filepath.Join(dir, "backup")}, {"kubeconfig", "--user=jane"}, {"token", "create", "--server=" + s.URL}, {"token", "list"}, {"certs"},
	} {
		if i%2 == 0 {
			succeeds(t, append(args, "--config", config))
		} else {
			succeeds(t, args, env("SQUBE_CONFIG="+config))
		}
	}
	_, stderr, code := sqube.Run(t, []string{"migrate", "status", "--config", config, "--datastore=sqlite:///none"})
	if want := "/none"; code != 1 || !strings.Contains(stderr, want) {
		t.Errorf("the command line does not win: code %d, %s", code, stderr)
	}
	s.Stop(t)
}

// flagz returns the values of a server's flags.
func flagz(t *testing.T, c kubernetes.Interface) map[string]string {
	t.Helper()
	text, err := c.CoreV1().RESTClient().Get().AbsPath("/flagz").SetHeader("Accept", "application/json;v=v1beta1;g=config.k8s.io;as=Flagz").DoRaw(t.Context())
	harness.Must(t, err)
	var answer struct{ Flags map[string]string }
	harness.Must(t, json.Unmarshal(text, &answer))
	return answer.Flags
}

// TestWrongSettings checks that every wrong setting results in one line that locates it.
func TestWrongSettings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ config, environment, want string }{
		{config: "retention: 5m\nretentoin: 5m", want: `FILE:2: "retentoin" is not a setting: did you mean retention?`},
		{config: "no-such-flag: 5m", want: `FILE:1: "no-such-flag" is not a setting `},
		{config: "config: other.yaml", want: `FILE:1: "config" is not a setting `},
		{config: "envtest: true", want: `FILE:1: "envtest" is not a setting `},
		{config: "--retention: 5m", want: `FILE:1: "--retention" is not a setting: did you mean retention?`},
		{config: "\n\nretention: soon", want: `FILE:3: retention "soon": time: invalid duration "soon"`},
		{config: "retention: 1ms", want: "--retention 1ms must be at least 1s (set by FILE:1, see sqube serve --help)"},
		{config: "retention: [5m]", want: "FILE:1: retention must be one value"},
		{config: "retention: {a: b}", want: "FILE:1: retention must be one value"},
		{config: "retention:", want: "FILE:1: retention has no value: give one, or put a # before it"},
		{config: "retention: 5m\n# again\nretention: 6m", want: "FILE:3: retention is set in line 1 already"},
		{config: "tls-san: a\ntls_san: b", want: "FILE:2: tls-san is set in line 1 already"},
		{config: "tls-san: {a: b}", want: "FILE:1: tls-san must be a list or one value"},
		{config: "tls-san: [a, [b]]", want: "FILE:1: tls-san must have plain values, line 1 has none"},
		{config: "feature-gates:\n  A: {}", want: "FILE:1: feature-gates must have plain values, line 2 has none"},
		{config: "control-plane: maybe", want: `FILE:1: control-plane "maybe": `},
		{config: "- retention", want: "--config FILE: line 1: want NAME: VALUE, where NAME is a flag's without the dashes"},
		{config: "retention: 5m\n---\nretention: 6m", want: "--config FILE: there is more than one YAML document"},
		{config: "retention: {", want: "--config FILE: "},
		{config: "a: \x00", want: "--config FILE: "},
		{config: strings.Repeat("# a comment\n", 100_000), want: "--config must name a readable file: FILE has more than 1048576 bytes"},
		{environment: "SQUBE_CONFIG=/missing/file", want: "--config must name a readable file: open /missing/file: no such file or directory"},
		{environment: "SQUBE_CONFIG=/", want: "--config must name a readable file: read /: is a directory"},
		{environment: "SQUBE_RETENTION=1ms", want: "--retention 1ms must be at least 1s (set by SQUBE_RETENTION, see sqube serve --help)"},
		{environment: "SQUBE_RETENTION=soon", want: `SQUBE_RETENTION: retention "soon": time: invalid duration "soon"`},
		{environment: "SQUBE_RETENTOIN=5m", want: "SQUBE_RETENTOIN is not a setting: did you mean SQUBE_RETENTION? Unset it if it is not for sqube"},
		{environment: "SQUBE_DATADIR=data", want: "SQUBE_DATADIR is not a setting: did you mean SQUBE_DATA_DIR?"},
		{environment: "SQUBE_data_dir=data", want: "SQUBE_data_dir: write SQUBE_DATA_DIR"},
	} {
		t.Run(c.environment+strings.ToValidUTF8(c.config[:min(20, len(c.config))], ""), func(t *testing.T) {
			t.Parallel()
			file := configFile(t, c.config)
			if c.environment == "" {
				c.environment = "SQUBE_CONFIG=" + file
			}
			refuses(t, strings.ReplaceAll(c.want, "FILE", file), []string{"serve", "--data-dir", t.TempDir(), "--secure-port", freePort(t)}, env(c.environment))
		})
	}
	// All commands check the settings.
	refuses(t, "SQUBE_DATASTOR is not a setting: did you mean SQUBE_DATASTORE?", []string{"check"}, env("SQUBE_DATASTOR=x"))
	// Under envtest, settings have no effect.
	refuses(t, "--etcd-servers must be specified", []string{"serve", "--envtest"}, env("SQUBE_RETENTION=1ms", "SQUBE_DATASTORE=x", "SQUBE_CONFIG=/missing"))
}

// TestPasswordInAConfigurationFile checks that a file with a password is rejected if everyone may read it.
func TestPasswordInAConfigurationFile(t *testing.T) {
	t.Parallel()
	const refusal = ":1: datastore holds a password and everyone may open the file: run chmod o= "
	for datastore, secret := range map[string]bool{
		"postgres://sqube:open-sesame@127.0.0.1:1/sqube":                  true,
		"postgres://sqube@127.0.0.1:1/sqube?password=open-sesame":         true,
		"postgres://sqube@127.0.0.1:1/sqube?sslpassword=open-sesame":      true,
		"postgres://sqube:open-sesame%zz@127.0.0.1:1/sqube":               true,
		"postgres://sqube@127.0.0.1:1/sqube?sslmode=disable&user=another": false,
		"sqlite:///none/sqube.db":                                         false,
	} {
		config := configFile(t, "datastore: "+datastore+"\n")
		for mode, open := range map[os.FileMode]bool{0o640: false, 0o644: true} {
			harness.Must(t, os.Chmod(config, mode))
			stdout, stderr, code := sqube.Run(t, []string{"migrate", "status", "--config", config})
			if code != 1 || strings.Contains(stderr, config+refusal+config) != (secret && open) {
				t.Errorf("%s with mode %o: ended with code %d and wrote %s", datastore, mode, code, stderr)
			}
			if strings.Contains(stdout+stderr, "open-sesame") {
				t.Errorf("the output has a password: %s%s", stdout, stderr)
			}
		}
	}
}

// TestConfigurationTemplate checks that sqube config names every flag in the help, with its default, and that serve accepts all
// of them.
func TestConfigurationTemplate(t *testing.T) {
	t.Parallel()
	template := succeeds(t, []string{"config"})
	settings := regexp.MustCompile(`(?m)^#([a-z0-9-]+): (.+)$`).FindAllStringSubmatch(template, -1)
	defaults := map[string]string{}
	var uncommented []string
	for _, s := range settings {
		defaults[s[1]] = s[2]
		switch {
		case strings.HasPrefix(s[1], "oidc-"), s[1] == "controllers": // which have an effect if given at all
		case s[1] == "control-plane": // without which others are rejected
			uncommented = append(uncommented, "control-plane: true")
		default:
			uncommented = append(uncommented, s[1]+": "+s[2])
		}
	}
	help := helpFlags(succeeds(t, []string{"serve", "--help"}))
	for _, flag := range help {
		switch value, found := defaults[flag.name]; {
		case flag.name == "config":
		case !found:
			t.Errorf("--%s is not in the template", flag.name)
		case flag.defaults != "" && value != flag.defaults:
			t.Errorf("--%s has default %s, the template has %s", flag.name, flag.defaults, value)
		}
	}
	if len(settings) != len(help)-1 || len(settings) < 200 {
		t.Errorf("the template has %d settings, the help %d flags", len(settings), len(help))
	}
	for line := range strings.Lines(template) {
		if line != "\n" && !strings.HasPrefix(line, "#") {
			t.Errorf("not a comment: %s", line)
		}
	}
	config := configFile(t, strings.Join(uncommented, "\n"))
	refuses(t, "--secure-port 0 must be between 1 and 65535", []string{"serve", "--config", config, "--data-dir", t.TempDir(), "--secure-port=0"})
}
