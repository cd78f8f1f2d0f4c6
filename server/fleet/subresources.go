package fleet

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sqube/sqube/server"
	"github.com/sqube/sqube/server/codecs"
	"github.com/sqube/sqube/server/fleet/v1alpha1"
)

// subresource is served for users who may use it. A nil answer has been sent.
type subresource struct {
	method string
	serve  func(w http.ResponseWriter, r *http.Request, name types.NamespacedName) (answer any, err error)
}

func (f *Fleet) subresources() map[string]subresource {
	return map[string]subresource{
		"clusters/kubeconfig": {http.MethodPost, f.kubeconfig},
		"clusterpools/claim":  {http.MethodPost, f.claim},
		"clusters/release":    {http.MethodPost, f.release},
		"clusters/state":      {http.MethodGet, f.state},
		"clusters/sleep":      {http.MethodPost, f.sleep},
		"clusters/wake":       {http.MethodPost, f.wakeUp},
		"clusters/export":     {http.MethodPost, f.export},
		"clusters/import":     {http.MethodPost, f.takeOver},
	}
}

// Subresources implements server.Fleet.
func (f *Fleet) Subresources(next http.Handler) http.Handler {
	all := f.subresources()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok || info.APIGroup != v1alpha1.GroupVersion.Group || info.Subresource == "" {
			next.ServeHTTP(w, r)
			return
		}
		path := info.Resource + "/" + info.Subresource
		one, ok := all[path]
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		if r.Method != one.method {
			codecs.WriteError(w, r, apierrors.NewMethodNotSupported(v1alpha1.GroupVersion.WithResource(path).GroupResource(), r.Method))
			return
		}
		name := types.NamespacedName{Namespace: info.Namespace, Name: info.Name}
		if c := f.find(name); c != nil && f.others().passOn(w, r, c, r.URL.Path, r.URL.RawPath) {
			return
		}
		answer, err := one.serve(w, r, name)
		if err != nil {
			codecs.WriteError(w, r, err)
			return
		}
		if answer == nil {
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

// kubeconfig returns credentials for a cluster, which need not be awake.
func (f *Fleet) kubeconfig(w http.ResponseWriter, r *http.Request, name types.NamespacedName) (any, error) {
	asked, err := readCredentials(w, r)
	if err != nil {
		return nil, err
	}
	return f.credentialsFor(r, name, asked)
}

// readCredentials returns the Credentials that a request asks for.
func readCredentials(w http.ResponseWriter, r *http.Request) (*v1alpha1.Credentials, error) {
	asked := &v1alpha1.Credentials{}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxAsked))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if len(body) > 0 {
		if err := json.Unmarshal(body, asked); err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("the body must be Credentials in JSON: %v", err))
		}
	}
	switch lifetime := asked.Lifetime(); {
	case lifetime == 0:
		asked.Spec.ExpirationSeconds = int64(defaultLifetime / time.Second)
	case lifetime < time.Minute || lifetime > maxLifetime:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("spec.expirationSeconds must be between %d and %d", int(time.Minute.Seconds()), int(maxLifetime.Seconds())))
	}
	return asked, nil
}

// administerVerb lets users of the host be whoever they like in a cluster.
const administerVerb = "administer"

// credentialsFor returns the credentials for a cluster that a request asks for. The cluster need not be awake. They end when their holder loses
// the right to request them.
func (f *Fleet) credentialsFor(r *http.Request, name types.NamespacedName, asked *v1alpha1.Credentials) (any, error) {
	c := f.find(name)
	if c == nil {
		return nil, apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource(resource).GroupResource(), name.Name)
	}
	caller, _ := request.UserFrom(r.Context())
	info, _ := request.RequestInfoFrom(r.Context())
	rights := []right{{Verb: info.Verb, Resource: info.Resource, Subresource: info.Subresource, Name: info.Name}}
	administer := right{Verb: administerVerb, Resource: resource, Name: name.Name}
	guest := server.Guest(caller)
	administers := info.Resource == pools // who may claim one is its administrator
	if !administers && f.guard.may(r.Context(), caller, c, administer) {
		administers = true
		rights = append(rights, administer)
	}
	foreign := func(group string) bool { return !slices.Contains(guest.Groups, group) }
	own := asked.Spec.User == guest.Name && len(asked.Spec.Groups) > 0 && !slices.ContainsFunc(asked.Spec.Groups, foreign)
	switch none := asked.Spec.User == "" && len(asked.Spec.Groups) == 0; {
	case none && administers:
		asked.Spec.User, asked.Spec.Groups = guest.Name, []string{user.SystemPrivilegedGroup}
	case none:
		asked.Spec.User, asked.Spec.Groups = guest.Name, guest.Groups
	case !administers && !own:
		return nil, apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource(resource).GroupResource(), name.Name, fmt.Errorf(
			"credentials of another user or group than your own need the verb %q of the cluster", administerVerb))
	case asked.Spec.User == "":
		return nil, apierrors.NewBadRequest("spec.groups needs spec.user")
	}
	given := pass{Database: c.id, User: asked.Spec.User, Groups: asked.Spec.Groups, Holder: holderOf(caller), Rights: rights}
	if given.User == guest.Name {
		given.Extra = guest.Extra
	}
	return f.credentials(c, given, asked)
}

// credentials returns a pass to a cluster as a kubeconfig.
func (f *Fleet) credentials(c *cluster, given pass, asked *v1alpha1.Credentials) (*v1alpha1.Credentials, error) {
	if given.Database == "" {
		return nil, apierrors.NewServiceUnavailable("the cluster is being created")
	}
	ca, err := f.host.ServingCA()
	if err != nil {
		return nil, err
	}
	expires := time.Now().Add(asked.Lifetime()).Truncate(time.Second)
	given.Expires = expires.Unix()
	token, err := f.guard.passes.write(given)
	if err != nil {
		return nil, err
	}
	entry := c.name.Namespace + "-" + c.name.Name
	config := clientcmdapi.NewConfig()
	config.Clusters[entry] = &clientcmdapi.Cluster{Server: f.url(c.name), CertificateAuthorityData: ca}
	config.AuthInfos[entry] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts[entry] = &clientcmdapi.Context{Cluster: entry, AuthInfo: entry}
	config.CurrentContext = entry
	kubeconfig, err := clientcmd.Write(*config)
	if err != nil {
		return nil, err
	}
	asked.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Credentials"}
	asked.Status = v1alpha1.CredentialsStatus{Namespace: c.name.Namespace, Cluster: c.name.Name, URL: f.url(c.name), Token: token,
		Kubeconfig: string(kubeconfig), Expires: metav1.NewTime(expires)}
	return asked, nil
}
