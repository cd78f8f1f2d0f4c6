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
		default:
			next.ServeHTTP(w, r)
			return
		}
		answer, err := serve(w, r, types.NamespacedName{Namespace: info.Namespace, Name: info.Name})
		if err != nil {
			codecs.WriteError(w, r, err)
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
	c := f.find(name)
	if c == nil {
		return nil, apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource(resource).GroupResource(), name.Name)
	}
	caller, _ := request.UserFrom(r.Context())
	rights := []right{{Verb: "create", Resource: resource, Subresource: "kubeconfig", Name: name.Name}}
	administer := right{Verb: administerVerb, Resource: resource, Name: name.Name}
	visitor := server.Guest(caller)
	asVisitor := asked.Spec.User == visitor.Name && len(asked.Spec.Groups) > 0 && !slices.ContainsFunc(asked.Spec.Groups, func(group string) bool { return !slices.Contains(visitor.Groups, group) })
	switch administers := f.guard.may(r.Context(), caller, c, administer); {
	case administers && asked.Spec.User == "" && len(asked.Spec.Groups) == 0:
		asked.Spec.User, asked.Spec.Groups = visitor.Name, []string{user.SystemPrivilegedGroup}
		rights = append(rights, administer)
	case asked.Spec.User == "" && len(asked.Spec.Groups) == 0:
		asked.Spec.User, asked.Spec.Groups = visitor.Name, visitor.Groups
	case asVisitor:
	case !administers:
		return nil, apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource(resource).GroupResource(), name.Name, fmt.Errorf(
			"credentials of another user or group than your own need the verb %q of the cluster", administerVerb))
	case asked.Spec.User == "":
		return nil, apierrors.NewBadRequest("spec.groups needs spec.user")
	default:
		rights = append(rights, administer)
	}
	return f.credentials(c, caller, asked, rights)
}

// administerVerb lets users of the host be whoever they like in a cluster.
const administerVerb = "administer"

// credentials returns a pass to a cluster for the user in asked.Spec, as a kubeconfig. It is valid while its holder has the rights.
func (f *Fleet) credentials(c *cluster, holder user.Info, asked v1alpha1.Credentials, rights []right) (*v1alpha1.Credentials, error) {
	lifetime := time.Duration(asked.Spec.ExpirationSeconds) * time.Second
	switch {
	case lifetime == 0:
		lifetime = defaultLifetime
	case lifetime < time.Minute || lifetime > maxLifetime:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("spec.expirationSeconds must be between %d and %d", int(time.Minute.Seconds()), int(maxLifetime.Seconds())))
	}
	database := c.identified().database
	if database == "" {
		return nil, apierrors.NewServiceUnavailable("the cluster is being created")
	}
	ca, err := f.host.ServingCA()
	if err != nil {
		return nil, err
	}
	var extra map[string][]string
	if visitor := server.Guest(holder); asked.Spec.User == visitor.Name {
		extra = visitor.Extra
	}
	expires := time.Now().Add(lifetime).Truncate(time.Second)
	token, err := f.guard.passes.write(pass{Database: database, User: asked.Spec.User, Groups: asked.Spec.Groups, Extra: extra,
		Expires: expires.Unix(), Holder: holderOf(holder), Rights: rights})
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
	return &asked, nil
}
