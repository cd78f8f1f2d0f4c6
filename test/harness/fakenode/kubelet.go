package fakenode

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// streamIdle is how long a connection into a container may be idle before the kubelet closes it.
const streamIdle = time.Minute

// Kubelet serves a kubelet's API. Clients need a certificate of ClientCAs, and permission for nodes/proxy of the node in the
// cluster. The log of a container is one line, NAMESPACE/POD/CONTAINER. Commands are simulated: "echo" and "cat" behave as in a
// shell, "exit CODE" exits with that code.
type Kubelet struct {
	Node        string
	Client      kubernetes.Interface // as the node
	Certificate tls.Certificate
	ClientCAs   *x509.CertPool
}

// Serve serves on the listener until the test ends.
func (k Kubelet) Serve(t testing.TB, listener net.Listener) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", k.log)
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", k.exec)
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: k.authorized(mux), ReadHeaderTimeout: streamIdle}}
	server.TLS = &tls.Config{Certificates: []tls.Certificate{k.Certificate}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: k.ClientCAs}
	server.StartTLS()
	t.Cleanup(server.Close)
}

// authorized authorizes the sender of a request with the cluster, like a kubelet with authorization mode Webhook.
func (k Kubelet) authorized(next http.Handler) http.Handler {
	verbs := map[string]string{http.MethodGet: "get", http.MethodPost: "create"}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		subject := r.TLS.PeerCertificates[0].Subject
		review, err := k.Client.AuthorizationV1().SubjectAccessReviews().Create(r.Context(), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User: subject.CommonName, Groups: append(subject.Organization, "system:authenticated"),
				ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verbs[r.Method], Version: "v1", Resource: "nodes", Subresource: "proxy", Name: k.Node},
			},
		}, metav1.CreateOptions{})
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		case !review.Status.Allowed:
			http.Error(w, fmt.Sprintf("%s may not %s nodes/proxy: %s", subject, verbs[r.Method], review.Status.Reason), http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// here reports whether the Pod of a request is on the node, or else responds that it is not.
func (k Kubelet) here(w http.ResponseWriter, r *http.Request) bool {
	pod, err := k.Client.CoreV1().Pods(r.PathValue("namespace")).Get(r.Context(), r.PathValue("pod"), metav1.GetOptions{})
	if err == nil && pod.Spec.NodeName != k.Node {
		err = fmt.Errorf("the Pod is on Node %q", pod.Spec.NodeName)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
	}
	return err == nil
}

func (k Kubelet) log(w http.ResponseWriter, r *http.Request) {
	if k.here(w, r) {
		fmt.Fprintf(w, "%s/%s/%s\n", r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container"))
	}
}

func (k Kubelet) exec(w http.ResponseWriter, r *http.Request) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if k.here(w, r) {
		remotecommand.ServeExec(w, r, played{}, r.PathValue("pod"), "", r.PathValue("container"), r.Form["command"], options,
			streamIdle, remotecommand.DefaultStreamCreationTimeout, remotecommand.SupportedStreamingProtocols)
	}
}

// played simulates commands in containers.
type played struct{}

// ExecInContainer runs a command, for package remotecommand.
func (played) ExecInContainer(_ context.Context, _, _, _ string, command []string, in io.Reader, out, errors io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	switch name, arguments := command[0], command[1:]; name {
	case "echo":
		_, err := fmt.Fprintln(out, strings.Join(arguments, " "))
		return err
	case "cat":
		_, err := io.Copy(out, in)
		return err
	case "exit":
		code, err := strconv.Atoi(strings.Join(arguments, " "))
		if err != nil {
			return err
		}
		return utilexec.CodeExitError{Err: fmt.Errorf("exit status %d", code), Code: code}
	default:
		fmt.Fprintf(errors, "%s: not found\n", name)
		return utilexec.CodeExitError{Err: fmt.Errorf("there is no command %s", name), Code: 127}
	}
}
