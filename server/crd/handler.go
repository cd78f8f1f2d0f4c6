package crd

import (
	"fmt"
	"mime"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"github.com/sqube/sqube/server/codecs"
)

// Handler serves custom resources, and the discovery of custom group versions, under /apis. A request for an undefined resource
// gets 404, or 503 while HasSynced is false.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serve) }

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok {
		responsewriters.ErrorNegotiated(apierrors.NewInternalError(fmt.Errorf("no RequestInfo found in the context")),
			codecs.Serving(), schema.GroupVersion{}, w, r)
		return
	}
	if info.IsResourceRequest {
		s.serveResource(w, r, info)
		return
	}
	switch parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/"); {
	case parts[0] == "apis" && len(parts) == 3:
		s.serveVersion(w, r, schema.GroupVersion{Group: parts[1], Version: parts[2]})
	default:
		s.notFound.ServeHTTP(w, r)
	}
}

func (s *Server) serveResource(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) {
	if writesProtobuf(r) {
		accepted := []string{runtime.ContentTypeJSON, runtime.ContentTypeYAML}
		if utilfeature.DefaultFeatureGate.Enabled(features.CBORServingAndStorage) {
			accepted = append(accepted, runtime.ContentTypeCBOR)
		}
		responsewriters.ErrorNegotiated(negotiation.NewUnsupportedMediaTypeError(accepted), codecs.Serving(), schema.GroupVersion{}, w, r)
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
	discovery.NewAPIVersionHandler(codecs.Serving(), gv, discovery.APIResourceListerFunc(list)).ServeHTTP(w, r)
}
