package crd

import (
	"mime"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"github.com/sqube/sqube/server/codecs"
	"github.com/sqube/sqube/server/watchtask"
)

// ServeHTTP serves custom resources, and the discovery of custom group versions, under /apis. A request for an undefined resource
// gets 404, or 503 while HasSynced is false. It needs the request's RequestInfo.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if info, _ := request.RequestInfoFrom(r.Context()); info.IsResourceRequest {
		s.serveResource(w, r, info)
		return
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if parts[0] == "apis" && len(parts) == 3 {
		s.serveVersion(w, r, schema.GroupVersion{Group: parts[1], Version: parts[2]})
		return
	}
	s.notFound.ServeHTTP(w, r)
}

func (s *Server) serveResource(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) {
	if writesProtobuf(r) {
		accepted := []string{runtime.ContentTypeJSON, runtime.ContentTypeYAML}
		if utilfeature.DefaultFeatureGate.Enabled(features.CBORServingAndStorage) {
			accepted = append(accepted, runtime.ContentTypeCBOR)
		}
		codecs.WriteError(w, r, negotiation.NewUnsupportedMediaTypeError(accepted))
		return
	}
	name := info.Resource + "." + info.APIGroup
	defer watchtask.AtEnd(r, s.inUse.begin(name))
	// Upstream's handler would respond with 500 if the definition can't be read.
	if _, err := s.inUse.Lister().Get(name); err != nil && !apierrors.IsNotFound(err) {
		codecs.WriteError(w, r, err)
		return
	}
	s.reads.handler(info)(w, r)
}

// writesProtobuf reports whether the body is protobuf, which custom resources do not support. Upstream's handler would panic.
func writesProtobuf(r *http.Request) bool {
	if r.Method != http.MethodPost && r.Method != http.MethodPut {
		return false
	}
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && mediaType == runtime.ContentTypeProtobuf
}

// serveVersion responds with the resources of a group version.
func (s *Server) serveVersion(w http.ResponseWriter, r *http.Request, gv schema.GroupVersion) {
	definitions := s.catalog.serving(gv)
	if len(definitions) == 0 {
		s.notFound.ServeHTTP(w, r)
		return
	}
	list := func() []metav1.APIResource { return describeLegacy(definitions, gv) }
	discovery.NewAPIVersionHandler(codecs.General(), gv, discovery.APIResourceListerFunc(list)).ServeHTTP(w, r)
}
