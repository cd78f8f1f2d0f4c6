package replicas

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// keyFlag names the key file that lets servers share keys through their database.
const keyFlag = "--pki-encryption-key-file"

// balancer is the name of a load balancer in front of the servers.
const balancer = "sqube.example.test"

// TestSharedKeys starts servers on an empty database at the same moment, each with nothing but the same key.
func TestSharedKeys(t *testing.T) {
	t.Parallel()
	datastore, key := harness.Postgres(t), sqube.KeyFile(t)
	launch := func(dir string) *sqube.Server {
		return sqube.Launch(t, sqube.Options{Datastore: datastore, DataDir: dir, Args: []string{keyFlag, key, "--tls-san", balancer}})
	}
	dirs := []string{t.TempDir(), t.TempDir()}
	var replicas []replica
	for _, dir := range dirs {
		replicas = append(replicas, replica{Server: launch(dir)})
	}
	for i := range replicas {
		replicas[i].WaitReady(t)
		replicas[i].Interface = client(t, replicas[i].Config(t))
	}
	authority := readFile(t, filepath.Join(dirs[0], "pki", "ca.crt"))
	for _, name := range []string{"ca.crt", "ca.key", "front-proxy-ca.crt", "front-proxy-ca.key", "sa.key"} {
		if !bytes.Equal(readFile(t, filepath.Join(dirs[0], "pki", name)), readFile(t, filepath.Join(dirs[1], "pki", name))) {
			t.Errorf("%s differs", name)
		}
	}
	t.Run("a token from one is valid on the other", func(t *testing.T) { tokens(t, replicas) })
	t.Run("what one creates first is no error to the other", func(t *testing.T) {
		for i, r := range replicas {
			if log := r.Log(t); strings.Contains(log, "already exists") {
				t.Errorf("server %d logs\n%s", i, log)
			}
		}
	})
	t.Run("a client certificate from one is valid on the other", func(t *testing.T) {
		for i, r := range replicas {
			other := r.Config(t)
			other.Host, other.ServerName = replicas[1-i].URL, balancer
			if user := self(t, other); user != "kubernetes-admin" {
				t.Errorf("the other server sees the administrator of server %d as %q", i, user)
			}
		}
	})
	t.Run("a kubeconfig is created from the database alone", func(t *testing.T) {
		text := succeeds(t, "kubeconfig", "--datastore", datastore, keyFlag, key, "--user", "jane", "--server", replicas[1].URL)
		config, err := clientcmd.RESTConfigFromKubeConfig([]byte(text))
		harness.Must(t, err)
		if user := self(t, config); user != "jane" {
			t.Errorf("jane is %q", user)
		}
	})
	t.Run("a kubeconfig without the key file names the flag", func(t *testing.T) {
		refused(t, "give the file that the other servers have with "+keyFlag, "kubeconfig", "--datastore", datastore, "--data-dir", t.TempDir(), "--user", "jane", "--server", replicas[1].URL)
	})
	t.Run("the API does not serve them", func(t *testing.T) {
		for _, path := range []string{"/apis/sqube.io/v1/shared_keys/cluster", "/apis/sqube.io/v1/shared_keys"} {
			if _, err := replicas[0].CoreV1().RESTClient().Get().AbsPath(path).DoRaw(t.Context()); err == nil {
				t.Errorf("%s is served", path)
			}
		}
	})
	t.Run("a server that has lost its files has the same keys again", func(t *testing.T) {
		replicas[1].Stop(t)
		harness.Must(t, os.RemoveAll(dirs[1]))
		harness.Must(t, os.Mkdir(dirs[1], 0o700))
		replicas[1].Start(t)
		if !bytes.Equal(readFile(t, filepath.Join(dirs[1], "pki", "ca.crt")), authority) {
			t.Error("it has a different CA")
		}
	})
	t.Run("a different key, no key, or different keys in the files fail at startup", func(t *testing.T) {
		serve := func(dir string, more ...string) []string {
			return append([]string{"serve", "--datastore", datastore, "--data-dir", dir, "--bind-address", "127.0.0.1"}, more...)
		}
		alien := t.TempDir()
		harness.Must(t, os.Mkdir(filepath.Join(alien, "pki"), 0o700))
		stranger := sqube.Start(t, sqube.Options{Datastore: harness.SQLite(t)})
		copyFile(t, filepath.Join(filepath.Dir(stranger.Kubeconfig), "pki", "sa.key"), filepath.Join(alien, "pki", "sa.key"))
		stranger.Stop(t)
		for want, args := range map[string][]string{
			"were encrypted with another key; use the file":        serve(t.TempDir(), keyFlag, sqube.KeyFile(t)),
			"holds the cluster's keys, encrypted: give the file":   serve(t.TempDir()),
			"sa.key: it does not have the key that the servers on": serve(alien, keyFlag, key),
			"base64 > /nowhere/key":                                serve(t.TempDir(), keyFlag, "/nowhere/key"),
		} {
			refused(t, want, args...)
		}
	})
	t.Run("a copy of the database has them, encrypted", func(t *testing.T) {
		dir := t.TempDir()
		file := "sqlite://" + filepath.Join(dir, "sqube.db")
		succeeds(t, "restore", datastore, "--datastore", file)
		for _, more := range [][]string{nil, {keyFlag, key}} {
			if text := succeeds(t, append([]string{"check", "--datastore", file}, more...)...); !strings.Contains(text, "nothing wrong") {
				t.Errorf("check %v: %s", more, text)
			}
		}
		refused(t, "something is wrong", "check", "--datastore", file, keyFlag, sqube.KeyFile(t))
		if text := succeeds(t, "history", "shared_keys.sqube.io", "cluster", "--datastore", datastore); !strings.Contains(text, "create") {
			t.Errorf("history: %s", text)
		}
		if bytes.Contains(readFile(t, filepath.Join(dir, "sqube.db")), []byte("PRIVATE KEY")) {
			t.Error("it has a key in plain text")
		}
		restored := sqube.Start(t, sqube.Options{Datastore: file, DataDir: dir, Args: []string{keyFlag, key}})
		config := replicas[0].Config(t)
		config.Host = restored.URL
		if user := self(t, config); user != "kubernetes-admin" {
			t.Errorf("a client of the first servers is %q", user)
		}
	})
}

// TestKeysInFiles gives servers the same keys with the flags that name files.
func TestKeysInFiles(t *testing.T) {
	t.Parallel()
	datastore := harness.Postgres(t)
	// How the keys are created is up to the operator. Here a server creates them.
	maker := sqube.Start(t, sqube.Options{Datastore: harness.SQLite(t)})
	admin := maker.Config(t)
	maker.Stop(t)
	pki := filepath.Join(filepath.Dir(maker.Kubeconfig), "pki")
	in := func(name string) string { return filepath.Join(pki, name) }
	var replicas []replica
	for range 2 {
		server := sqube.Start(t, sqube.Options{Datastore: datastore, Args: []string{
			"--tls-cert-file", in("apiserver.crt"), "--tls-private-key-file", in("apiserver.key"),
			"--client-ca-file", in("ca.crt"), "--requestheader-client-ca-file", in("front-proxy-ca.crt"),
			"--service-account-key-file", in("sa.key"), "--service-account-signing-key-file", in("sa.key"),
		}})
		config := rest.CopyConfig(admin)
		config.Host = server.URL
		if user := self(t, config); user != "kubernetes-admin" {
			t.Errorf("the administrator is %q", user)
		}
		replicas = append(replicas, replica{server, client(t, config)})
	}
	tokens(t, replicas)
}

func client(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	config.QPS = -1                           // no client-side limit
	config.WarningHandler = rest.NoWarnings{} // Endpoints are deprecated
	client, err := kubernetes.NewForConfig(config)
	harness.Must(t, err)
	return client
}

// self returns who the client is, according to the server.
func self(t *testing.T, config *rest.Config) string {
	t.Helper()
	review, err := client(t, config).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	harness.Must(t, err)
	return review.Status.UserInfo.Username
}

// succeeds runs a command and returns what it prints.
func succeeds(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), sqube.Binary(t), args...).Output()
	if err != nil {
		t.Fatalf("sqube %s: %v\n%s", args[0], err, errorText(err))
	}
	return string(out)
}

// refused runs a command that must fail with a single line that contains want.
func refused(t *testing.T, want string, args ...string) {
	t.Helper()
	_, err := exec.CommandContext(t.Context(), sqube.Binary(t), args...).Output()
	if text := errorText(err); err == nil || strings.Count(text, "\n") != 1 || !strings.Contains(text, want) {
		t.Errorf("want one line with %q, got %q, %v", want, text, err)
	}
}

func errorText(err error) string {
	if failed := new(exec.ExitError); errors.As(err, &failed) {
		return string(failed.Stderr)
	}
	return ""
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	harness.Must(t, err)
	return data
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	harness.Must(t, os.WriteFile(to, readFile(t, from), 0o600))
}
