package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// patience limits every wait on a machine that is busy with other tests.
const patience = time.Minute

var (
	browser    context.Context
	address    string // of the server
	config     *rest.Config
	kubeconfig string // of an administrator
	admin      string // the token of another one
	output     bytes.Buffer
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, output.Bytes())
		code = 1
	}
	os.Exit(code)
}

// run starts the sqube that SQUBE_BIN names, and a browser.
func run(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "sqube-console-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	address = "https://" + listener.Addr().String()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	listener.Close()
	if provider, err = newIdentityProvider(); err != nil {
		return 0, err
	}
	defer provider.Close()
	authority, secret := filepath.Join(dir, "provider.crt"), filepath.Join(dir, "secret")
	if err := errors.Join(provider.write(authority), os.WriteFile(secret, []byte(clientSecret+"\n"), 0o600)); err != nil {
		return 0, err
	}
	server := exec.Command(os.Getenv("SQUBE_BIN"), "serve", "--data-dir", dir, "--bind-address", "127.0.0.1", "--secure-port", port, "--clusters",
		"--oidc-issuer-url", provider.URL, "--oidc-client-id", clientID, "--oidc-ca-file", authority, "--oidc-username-prefix", "oidc:",
		"--console-oidc-client-secret-file", secret, "--console-oidc-extra-scopes", "email")
	server.Stdout, server.Stderr = &output, &output
	if err := server.Start(); err != nil {
		return 0, fmt.Errorf("%w: SQUBE_BIN must name a program (make e2e)", err)
	}
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	}()
	kubeconfig = filepath.Join(dir, "admin.kubeconfig")
	if err := connect(); err != nil {
		return 0, err
	}
	var end func()
	if browser, end, err = newBrowser(); err != nil {
		return 0, err
	}
	defer end()
	return m.Run(), nil
}

// connect waits for the server and makes the administrator's token.
func connect() (err error) {
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if config, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err == nil {
			config.QPS, config.Burst = -1, 0
			if _, err = kubernetes.NewForConfigOrDie(config).Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(context.Background()); err == nil {
				break
			}
		}
		if time.Now().After(deadline) {
			return err
		}
	}
	admin, err = tokenFor("default", "admin", &rbacv1.RoleRef{Kind: "ClusterRole", Name: "cluster-admin"}, true)
	return err
}

// as returns a client with the rights of an administrator and another name.
func as(user string) kubernetes.Interface {
	if user == "" {
		return kubernetes.NewForConfigOrDie(config)
	}
	text, err := exec.Command(os.Getenv("SQUBE_BIN"), "kubeconfig", "--data-dir", filepath.Dir(kubeconfig), "--user", user, "--group", "system:masters").Output()
	if err != nil {
		panic(fmt.Sprintf("sqube kubeconfig --user %s: %v", user, err))
	}
	named, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		panic(err)
	}
	named.QPS = -1
	return kubernetes.NewForConfigOrDie(named)
}

// tokenFor returns the token of a new service account with a role, in its namespace or in all.
func tokenFor(namespace, name string, role *rbacv1.RoleRef, everywhere bool) (string, error) {
	c, ctx := as(""), context.Background()
	accounts := c.CoreV1().ServiceAccounts(namespace)
	if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: name}}
	var err error
	if everywhere {
		_, err = c.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: *role, Subjects: subjects}, metav1.CreateOptions{})
	} else {
		_, err = c.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: *role, Subjects: subjects}, metav1.CreateOptions{})
	}
	if err != nil {
		return "", err
	}
	made, err := accounts.CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return made.Status.Token, nil
}

// newNamespace makes a namespace, and the role to see it.
func newNamespace(t testing.TB, name string) {
	t.Helper()
	_, err := as("").CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	must(t, err)
}

// newConfigMap makes a ConfigMap.
func newConfigMap(t testing.TB, user, namespace, name, value string) {
	t.Helper()
	_, err := as(user).CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"key": value}}, metav1.CreateOptions{})
	must(t, err)
}

// setConfigMap changes it.
func setConfigMap(t testing.TB, user, namespace, name, value string) {
	t.Helper()
	configMaps := as(user).CoreV1().ConfigMaps(namespace)
	m, err := configMaps.Get(t.Context(), name, metav1.GetOptions{})
	must(t, err)
	m.Data["key"] = value
	_, err = configMaps.Update(t.Context(), m, metav1.UpdateOptions{})
	must(t, err)
}

// removesPods removes the Pods of a namespace at the end of a test: trials copy all there is.
func removesPods(t *testing.T, namespace string) {
	t.Cleanup(func() {
		at := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
		if err := as("").CoreV1().Pods(namespace).DeleteCollection(context.Background(), at, metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
	})
}
