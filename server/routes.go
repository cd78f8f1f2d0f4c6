package server

import (
	"net/http"
	"slices"

	"github.com/gorilla/mux"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/server/flagz"
	servermux "k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/statusz"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/prometheus/slis"
	zpages "k8s.io/component-base/zpages/features"

	"github.com/sqube/sqube/server/access"
	"github.com/sqube/sqube/server/handlers"
	"github.com/sqube/sqube/server/mirror"
	"github.com/sqube/sqube/server/openapi"
)

// AgentPath is where agents use the server, by the Model Context Protocol.
const AgentPath = "/mcp"

// routes returns the handler of all paths.
func (s *Server) routes(api *handlers.API, documents *openapi.Service, openID map[string]access.OpenIDDocument) http.Handler {
	router := mux.NewRouter().SkipClean(true)
	paths := &paths{router: router, exact: map[string]http.Handler{}}

	router.PathPrefix("/openapi/").Handler(documents)
	s.health(paths)
	if s.options.Hosted == nil { // these, like profiles, tell of the whole process
		paths.Handle("/metrics", withRunningWork(legacyregistry.HandlerWithReset()))
		slis.SLIMetricsWithReset{}.Install(paths)
	}
	paths.handleTree("/version", handlers.ReadOnly("/version", http.HandlerFunc(version), runtime.ContentTypeJSON, runtime.ContentTypeJSON))
	for path, document := range openID {
		paths.handleTree(path, handlers.ReadOnly(path, document, document.MediaType, ""))
	}
	if s.fairness != nil {
		queues := servermux.NewPathRecorderMux("priority and fairness")
		s.fairness.Install(queues)
		router.PathPrefix("/debug/api_priority_and_fairness/").Handler(queues)
	}
	if s.options.Agents != nil {
		paths.Handle(AgentPath, s.options.Agents(s.onBehalf))
	}
	if s.follower != nil && s.options.Mirror.AuditWebhook {
		paths.Handle(mirror.AuditPath, s.follower)
	}
	s.installProfiling(router)
	paths.seen = append(paths.seen, "/api", "/api/v1", "/apis", "/apis/", openapi.PathV2, openapi.PathV3, openapi.PathV3+"/")
	if s.options.Hosted == nil {
		s.installPages(paths)
	}
	for _, path := range []string{"/", "/index.html"} {
		paths.exact[path] = s.index(paths.seen)
	}
	return api.Handler(paths)
}

// installPages adds the pages /statusz (KEP-4827) and /flagz (KEP-4828), which users in the group system:monitoring may read.
// /statusz lists the paths that were added before, and itself.
func (s *Server) installPages(paths *paths) {
	const component = "apiserver" // like kube-apiserver
	if flags := s.options.Flags; flags != nil && utilfeature.DefaultFeatureGate.Enabled(zpages.ComponentFlagz) {
		flagz.Install(paths, component, flagz.NamedFlagSetsReader{FlagSets: *flags})
	}
	if utilfeature.DefaultFeatureGate.Enabled(zpages.ComponentStatusz) {
		listed := append(slices.Clone(paths.seen), statusz.DefaultStatuszPath)
		slices.Sort(listed)
		version := compatibility.DefaultComponentGlobalsRegistry.EffectiveVersionFor(basecompatibility.DefaultKubeComponent)
		statusz.Install(paths, component, statusz.NewRegistry(version, statusz.WithListedPaths(listed)))
	}
}

// index lists the given paths, and those of all current groups.
func (s *Server) index(fixed []string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		groups, err := s.aggregation.Paths()
		if err != nil {
			responsewriters.InternalError(w, r, err)
			return
		}
		all := slices.Concat(fixed, groups)
		slices.Sort(all)
		responsewriters.WriteRawJSON(http.StatusOK, metav1.RootPaths{Paths: slices.Compact(all)}, w)
	}
}

// paths serves single paths, and leaves the others to a router, which would compile a regular expression for each of more than a hundred.
type paths struct {
	router *mux.Router
	exact  map[string]http.Handler
	seen   []string
}

// Handle implements the mux of package healthz.
func (p *paths) Handle(path string, handler http.Handler) {
	p.exact[path] = handler
	p.seen = append(p.seen, path)
}

// ServeHTTP implements http.Handler.
func (p *paths) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if handler, ok := p.exact[r.URL.Path]; ok {
		handler.ServeHTTP(w, r)
		return
	}
	p.router.ServeHTTP(w, r)
}

// handleTree adds the handler of a path, and of the paths below it.
func (p *paths) handleTree(path string, handler http.Handler) {
	p.Handle(path, handler)
	p.router.PathPrefix(path + "/").Handler(handler)
}

func version(w http.ResponseWriter, _ *http.Request) {
	responsewriters.WriteRawJSON(http.StatusOK, *compatibility.DefaultComponentGlobalsRegistry.EffectiveVersionFor(basecompatibility.DefaultKubeComponent).Info(), w)
}
