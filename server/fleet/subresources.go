package fleet

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sqube/sqube/server/codecs"
	"github.com/sqube/sqube/server/fleet/v1alpha1"
)

// Subresources implements server.Fleet.
func (f *Fleet) Subresources(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok || info.APIGroup != v1alpha1.GroupVersion.Group || info.Subresource == "" {
			next.ServeHTTP(w, r)
			return
		}
		var serve func(w http.ResponseWriter, r *http.Request, name types.NamespacedName) (any, error)
		switch info.Resource + "/" + info.Subresource {
		case "clusters/kubeconfig":
			serve = f.kubeconfig
		case "clusters/state":
			serve = f.state
		case "clusters/sleep":
			serve = f.sleep
		case "clusters/wake":
			serve = f.wakeUp
		case "clusters/export":
			serve = f.export
		case "clusters/import":
			serve = f.takeOver
		default:
			next.ServeHTTP(w, r)
			return
		}
		name := types.NamespacedName{Namespace: info.Namespace, Name: info.Name}
		if c := f.find(name); c != nil && f.others().passOn(w, r, c, r.URL.Path, r.URL.RawPath) {
			return
		}
		answer, err := serve(w, r, name)
		if err != nil {
			codecs.WriteError(w, r, err)
			return
		}
		if answer == nil { // it has been sent
			return
		}
		code := http.StatusCreated
		if r.Method == http.MethodGet {
			code = http.StatusOK
		}
		responsewriters.WriteRawJSON(code, answer, w)
	})
}

const (
	defaultLifetime = time.Hour
	maxLifetime     = 24 * time.Hour
	maxAsked        = 64 << 10 // bytes of a request's body
)

// kubeconfig returns credentials for a cluster.
func (f *Fleet) kubeconfig(w http.ResponseWriter, r *http.Request, name types.NamespacedName) (any, error) {
	if r.Method != http.MethodPost {
		return nil, apierrors.NewMethodNotSupported(v1alpha1.GroupVersion.WithResource("clusters/kubeconfig").GroupResource(), r.Method)
	}
	asked := v1alpha1.Credentials{}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxAsked))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if len(body) > 0 {
		if err := json.Unmarshal(body, &asked); err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("the body must be Credentials in JSON: %v", err))
		}
	}
	caller, _ := request.UserFrom(r.Context())
	if asked.Spec.User == "" {
		asked.Spec.User, asked.Spec.Groups = caller.GetName(), []string{"system:masters"}
	}
	lifetime := time.Duration(asked.Spec.ExpirationSeconds) * time.Second
	switch {
	case lifetime == 0:
		lifetime = defaultLifetime
	case lifetime < time.Minute || lifetime > maxLifetime:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("spec.expirationSeconds must be between %d and %d", int(time.Minute.Seconds()), int(maxLifetime.Seconds())))
	}
	c := f.find(name)
	if c == nil {
		return nil, apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource(resource).GroupResource(), name.Name)
	}
	s, leave, err := c.enter(r.Context(), false)
	if err != nil {
		return nil, apierrors.NewServiceUnavailable(err.Error())
	}
	defer leave()
	expires := metav1.NewTime(time.Now().Add(lifetime))
	kubeconfig, err := s.Credentials(asked.Spec.User, asked.Spec.Groups, lifetime)
	if err != nil {
		return nil, err
	}
	asked.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Credentials"}
	asked.Status = v1alpha1.CredentialsStatus{Namespace: name.Namespace, Cluster: name.Name, URL: f.url(name), Kubeconfig: string(kubeconfig), Expires: expires}
	return asked, nil
}
