package loopback

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
)

// whoami responds with the caller's name and groups according to Authenticator, or 401.
func whoami(w http.ResponseWriter, r *http.Request) {
	resp, ok, err := Authenticator.AuthenticateRequest(r)
	if err != nil || !ok {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	w.Header().Set("X-User", resp.User.GetName())
	w.Header()["X-Group"] = resp.User.GetGroups()
}

func TestInProcessCallerIsTheLoopbackUser(t *testing.T) {
	resp := get(t, context.Background(), serving(t, whoami), "/")
	if got := resp.Header.Get("X-User"); got != "system:apiserver" {
		t.Errorf("user %q", got)
	}
	if want := []string{user.SystemPrivilegedGroup, user.AllAuthenticated}; !slices.Equal(resp.Header["X-Group"], want) {
		t.Errorf("groups %v, want %v", resp.Header["X-Group"], want)
	}
}

// TestUsersOfOneTransport has clients of different users on one transport at the same time.
func TestUsersOfOneTransport(t *testing.T) {
	transport := serving(t, whoami)
	for _, want := range [][]string{
		{user.APIServerUser, user.SystemPrivilegedGroup, user.AllAuthenticated},
		{"jane", "a", "b", user.AllAuthenticated},
		{"joe", user.AllAuthenticated},
	} {
		t.Run(want[0], func(t *testing.T) {
			t.Parallel()
			config := transport.Config()
			if want[0] != user.APIServerUser {
				config = transport.ConfigOf(want[0], want[1:len(want)-1]...)
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := config.Transport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			if got := append(resp.Header["X-User"], resp.Header["X-Group"]...); !slices.Equal(got, want) {
				t.Errorf("the request is of %q, want %q", got, want)
			}
			if err := resp.Body.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestNetworkCallerCannotForge(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(whoami))
	defer server.Close()
	req, err := http.NewRequestWithContext(withIdentity(context.Background(), &loopbackUser), http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "loopback.invalid"
	req.Header.Set("X-Remote-User", "system:apiserver")
	req.Header.Set("X-Remote-Group", user.SystemPrivilegedGroup)
	req.Header.Set("Authorization", "Bearer system:apiserver")
	resp, err := server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a request from a socket was authenticated as %q", resp.Header.Get("X-User"))
	}
}

func TestClientGoListsAndWatches(t *testing.T) {
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: "p", ResourceVersion: "7"},
	}
	tr := serving(t, func(w http.ResponseWriter, r *http.Request) {
		if accepted := r.Header.Get("Accept"); !strings.HasPrefix(accepted, runtime.ContentTypeProtobuf) {
			t.Errorf("the client prefers %q, which takes three times the CPU of protobuf", accepted)
		}
		if r.URL.Query().Get("watch") != "true" {
			w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
			if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(&corev1.PodList{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []corev1.Pod{*pod},
			}, w); err != nil {
				t.Error(err)
			}
			return
		}
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		w.(http.Flusher).Flush()
		if _, err := w.Write([]byte(`{"type":"ADDED","object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"}}}`)); err != nil {
			t.Error(err)
		}
		<-r.Context().Done()
	})
	clients, err := kubernetes.NewForConfig(tr.Config())
	if err != nil {
		t.Fatal(err)
	}
	list, err := clients.CoreV1().Pods("default").List(context.Background(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "p" {
		t.Fatalf("list: %v, %v", list, err)
	}
	w, err := clients.CoreV1().Pods("default").Watch(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if e := <-w.ResultChan(); e.Type != watch.Added {
		t.Fatalf("got %+v", e)
	}
	w.Stop()
}
