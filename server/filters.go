package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	apifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/metrics"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/apiserver/pkg/features"
	serverfilters "k8s.io/apiserver/pkg/server/filters"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"

	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/server/codecs"
	"github.com/sqube/sqube/server/connections"
	"github.com/sqube/sqube/server/console"
	"github.com/sqube/sqube/server/crd"
	"github.com/sqube/sqube/server/handlers"
	"github.com/sqube/sqube/server/loopback"
	"github.com/sqube/sqube/server/mirror"
	"github.com/sqube/sqube/server/stack"
	"github.com/sqube/sqube/server/transactions"
	"github.com/sqube/sqube/server/watchtask"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage"
)

// requestInfo parses paths into verb, resource, namespace and name.
var requestInfo = &request.RequestInfoFactory{
	APIPrefixes:          sets.NewString("api", "apis"),
	GrouplessAPIPrefixes: sets.NewString("api"),
}

// longRunning reports whether a request has no time limit: watches, connections into pods, clusters that are moved, and trials and agents, which
// have limits of their own.
func longRunning(r *http.Request, info *request.RequestInfo) bool {
	return longRunningResource(r, info) || r.URL.Path == console.TrialsPath || r.URL.Path == AgentPath
}

var longRunningResource = serverfilters.BasicLongRunningRequestCheck(
	sets.NewString("watch", "proxy"),
	sets.NewString("attach", "exec", "proxy", "log", "portforward", "export", "import"),
)

// withFilters adds the filters to the handlers. A request passes them in the order of this list.
func (s *Server) withFilters(handler http.Handler, api *handlers.API) http.Handler {
	o, serializer := s.options, codecs.General()
	filters := []func(http.Handler) http.Handler{
		apifilters.WithAuditInit,
		func(h http.Handler) http.Handler { return serverfilters.WithPanicRecovery(h, requestInfo) },
		awaitWatch,
		withStack,
		apifilters.WithRequestReceivedTimestamp,
		func(h http.Handler) http.Handler { return apifilters.WithRequestInfo(h, requestInfo) },
		s.connections.Admit,
		func(h http.Handler) http.Handler { return connections.LongRunning(h, longRunning, o.RequestTimeout) },
		func(h http.Handler) http.Handler {
			return connections.Bodies(h, longRunning, min(connections.ReadHeaderTimeout, o.RequestTimeout))
		},
		func(h http.Handler) http.Handler { return whileServing(h, s.phase.serving) },
		withSlowClientDetection,
		apifilters.WithLatencyTrackers,
		serverfilters.WithHTTPLogging,
		func(h http.Handler) http.Handler { return serverfilters.WithHSTS(h, o.HSTS) },
		apifilters.WithCacheControl,
		func(h http.Handler) http.Handler {
			if o.GoawayChance == 0 {
				return h
			}
			return serverfilters.WithProbabilisticGoaway(h, o.GoawayChance)
		},
		func(h http.Handler) http.Handler {
			return apifilters.WithRequestDeadline(h, s.audit.Backend, s.audit.Policy, longRunning, serializer, o.RequestTimeout)
		},
		func(h http.Handler) http.Handler { return withTimeout(h, endsWithContext(api, s.crd)) },
		apifilters.WithWarningRecorder,
		func(h http.Handler) http.Handler {
			return serverfilters.WithCORS(h, o.CORSAllowedOrigins, nil, nil, nil, "true")
		},
		s.withConsole,
		s.withReadOnly,
		func(h http.Handler) http.Handler {
			unauthorized := apifilters.WithFailedAuthenticationAudit(apifilters.Unauthorized(serializer), s.audit.Backend, s.audit.Policy)
			return apifilters.WithAuthentication(h, s.authentication.Authenticator, unauthorized,
				s.authentication.Audiences, s.authentication.RequestHeader)
		},
		withImpersonator,
		s.connections.Authenticated,
		watchtask.Whole,
		func(h http.Handler) http.Handler {
			if !s.outbound.traced {
				return h
			}
			return apifilters.WithTracing(h, s.outbound.tracing)
		},
		s.withAudit,
		awaitServing,
		func(h http.Handler) http.Handler {
			if utilfeature.DefaultFeatureGate.Enabled(features.ConstrainedImpersonation) {
				return impersonation.WithConstrainedImpersonation(h, s.authorization.Authorizer, serializer)
			}
			return impersonation.WithImpersonation(h, s.authorization.Authorizer, serializer)
		},
		s.limit,
		s.withTrials,
		func(h http.Handler) http.Handler {
			return apifilters.WithAuthorization(h, s.authorization.Authorizer, serializer)
		},
		func(h http.Handler) http.Handler {
			if o.Fleet == nil {
				return h
			}
			return o.Fleet.Subresources(h)
		},
		func(h http.Handler) http.Handler { return s.history.transactions.Join(h, longRunning) },
		s.withAuthor,
		s.withWriteLimits,
		s.withPast,
		s.written.byClients,
		withMemoryAccount,
		s.withAllOrNothing(api),
		s.beginServing,
	}
	for i := len(filters) - 1; i >= 0; i-- {
		handler = filters[i](handler)
	}
	return handler
}

// withConsole serves the files of the console, which say nothing of the cluster, and signing in, before anybody is authenticated.
func (s *Server) withConsole(next http.Handler) http.Handler {
	if !s.options.Console {
		return next
	}
	signIn := &console.SignIn{SignInOptions: s.options.ConsoleSignIn, Issuers: func() ([]console.Issuer, error) {
		return s.options.Access.Issuers(s.outbound.egress)
	}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case console.ServesTrials(path):
			next.ServeHTTP(w, withToken(r))
		case console.ServesSignIn(path):
			signIn.ServeHTTP(w, r)
		case console.Serves(path):
			console.ServeHTTP(w, r)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// withTimeout responds with 504 to requests that take too long. This takes a goroutine for each request, which would cost more than a get of
// a built-in resource and a tenth of a write. Those for which endsWithContext is true do without it.
func withTimeout(next http.Handler, endsWithContext func(*request.RequestInfo) bool) http.Handler {
	limited := connections.UntilDone(func(h http.Handler) http.Handler {
		return serverfilters.WithTimeoutForNonLongRunningRequests(h, longRunning)
	}, withStack(withStatusOfHead(next)))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok || !endsWithContext(info) {
			limited.ServeHTTP(w, r)
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w = responsewriter.WrapForHTTP1Or2(&timedOutWriter{w, r.Context(), false})
		}
		next.ServeHTTP(w, r)
		if errors.Is(r.Context().Err(), context.DeadlineExceeded) {
			metrics.RecordRequestTermination(r, info, metrics.APIServerComponent, http.StatusGatewayTimeout)
		}
	})
}

// timedOutWriter replaces what a handler says of a write whose time is up by what upstream's time limit says. From that, clients in Go tell
// their users that the request may still be processed.
type timedOutWriter struct {
	http.ResponseWriter
	ctx      context.Context // of the request
	replaced bool
}

// WriteHeader implements http.ResponseWriter.
func (t *timedOutWriter) WriteHeader(code int) {
	if code != http.StatusGatewayTimeout || !errors.Is(t.ctx.Err(), context.DeadlineExceeded) {
		t.ResponseWriter.WriteHeader(code)
		return
	}
	t.replaced = true
	t.Header().Del("Content-Type")
	t.ResponseWriter.WriteHeader(code)
	_ = json.NewEncoder(t.ResponseWriter).Encode(apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0).Status())
}

// Write implements http.ResponseWriter.
func (t *timedOutWriter) Write(p []byte) (int, error) {
	if t.replaced {
		return len(p), nil
	}
	return t.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach the underlying writer.
func (t *timedOutWriter) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// withStatusOfHead sends the status of a response to a HEAD whose handler only sets headers. The server would, but upstream's time limit keeps
// headers from it until there is a status.
func withStatusOfHead(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodHead {
			next.ServeHTTP(w, r)
			return
		}
		noticed := &noticedStatus{ResponseWriter: w}
		next.ServeHTTP(noticed, r)
		if !noticed.sent {
			w.WriteHeader(http.StatusOK)
		}
	})
}

// noticedStatus records whether a status was sent.
type noticedStatus struct {
	http.ResponseWriter
	sent bool
}

func (n *noticedStatus) WriteHeader(code int) {
	n.sent = true
	n.ResponseWriter.WriteHeader(code)
}

func (n *noticedStatus) Write(p []byte) (int, error) {
	n.sent = true
	return n.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach the underlying writer.
func (n *noticedStatus) Unwrap() http.ResponseWriter { return n.ResponseWriter }

// endsWithContext returns a function that reports whether everything that a request waits for ends with its context: writes of one object,
// to which upstream's handlers respond with 504 themselves, and gets of built-in resources. A get of a custom resource may wait for a
// conversion webhook.
func endsWithContext(api *handlers.API, custom *crd.Server) func(*request.RequestInfo) bool {
	return func(info *request.RequestInfo) bool {
		builtIn := api.Serves(schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}, info.Resource)
		switch info.Verb {
		case "get":
			return builtIn
		case "create", "update", "patch", "delete":
			return builtIn || custom.Defines(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource})
		}
		return false
	}
}

// limit queues or rejects requests while too many run: by priority and fairness (KEP-1040), or by number alone if that is
// off. What the server itself requests for a transaction runs in the place of its request: if each needed another one, transactions could wait
// for each other.
func (s *Server) limit(next http.Handler) http.Handler {
	limited := s.limitOthers(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if sqlstore.TransactionFrom(r.Context()) != nil && loopback.Made(r) {
			next.ServeHTTP(w, r)
			return
		}
		limited.ServeHTTP(w, r)
	})
}

func (s *Server) limitOthers(next http.Handler) http.Handler {
	o := s.options
	if s.fairness == nil {
		return serverfilters.WithMaxInFlightLimit(next, o.MaxInFlight, o.MaxMutatingInFlight, longRunning)
	}
	work := flowcontrolrequest.NewWorkEstimator(s.objectCounter.tracker.Get, s.fairness.GetInterestedWatchCount, flowcontrolrequest.DefaultWorkEstimatorConfig(), s.fairness.GetMaxSeats)
	return serverfilters.WithPriorityAndFairness(next, longRunning, s.fairness, work, o.RequestTimeout/4)
}

// withStack grows the stack for the handlers that follow.
func withStack(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stack.Request()
		next.ServeHTTP(w, r)
	})
}

// whileServing ends long-running requests when serving ends. Clients of watches reconnect to another server, or to this one
// after its restart.
func whileServing(next http.Handler, serving context.Context) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok || !longRunning(r, info) {
			next.ServeHTTP(w, r)
			return
		}
		ctx, cancel := context.WithCancel(r.Context())
		stop := context.AfterFunc(serving, cancel)
		defer watchtask.AtEnd(r, func() {
			stop()
			cancel()
		})
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// withMemoryAccount counts the memory of a list until its response has been sent.
func withMemoryAccount(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if info, ok := request.RequestInfoFrom(r.Context()); !ok || info.Verb != "list" {
			next.ServeHTTP(w, r)
			return
		}
		ctx, answered := apistorage.WithListBudget(r.Context())
		defer answered()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// withPast bounds what requests read that was before, which takes a look only at those with a resourceVersion or a continue token. And it lets
// a get of one object have resourceVersionMatch=Exact, like lists: the object as it was at that revision. Upstream's handlers ignore it.
func (s *Server) withPast(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery == "" {
			next.ServeHTTP(w, r)
			return
		}
		info, ok := request.RequestInfoFrom(r.Context())
		query := r.URL.Query()
		version := query.Get("resourceVersion")
		exact := ok && info.Verb == "get" && query.Get("resourceVersionMatch") == string(metav1.ResourceVersionMatchExact)
		if !ok || !info.IsResourceRequest || !exact && version == "" && query.Get("continue") == "" {
			next.ServeHTTP(w, r)
			return
		}
		ctx := apistorage.WithGuard(r.Context(), s.history.log.Guard)
		if exact {
			revision, err := strconv.ParseInt(version, 10, 64)
			if err != nil || revision <= 0 || info.Subresource != "" {
				codecs.WriteError(w, r, apierrors.NewBadRequest(fmt.Sprintf(
					"resourceVersionMatch=Exact is for the get of an object at a resourceVersion, not of %s at %q", info.Path, version)))
				return
			}
			ctx = apistorage.WithRevision(ctx, revision)
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// asking are the groups of resources that are created to ask something. They are not stored.
var asking = append(slices.Clone(changes.Reviews), changes.GroupVersion.Group)

// asks reports whether a request creates what is not stored, and writes nothing else.
func asks(info *request.RequestInfo) bool {
	return info.Verb == "create" && info.Subresource == "" && info.Resource != transactions.Resource && slices.Contains(asking, info.APIGroup)
}

// withReadOnly refuses everything but reads with Options.ReadOnly, also of the server's own clients.
func (s *Server) withReadOnly(next http.Handler) http.Handler {
	if s.options.ReadOnly == "" {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, _ := request.RequestInfoFrom(r.Context())
		switch {
		case r.Method == http.MethodGet, r.Method == http.MethodHead, info != nil && asks(info), r.URL.Path == mirror.AuditPath:
			next.ServeHTTP(w, r)
		default:
			err := apierrors.NewMethodNotSupported(changes.GroupVersion.WithResource("").GroupResource(), r.Method)
			err.ErrStatus.Message, err.ErrStatus.Details = s.options.ReadOnly, nil
			responsewriters.ErrorNegotiated(err, codecs.General(), changes.GroupVersion, w, r)
		}
	})
}

// written reports whether a client may have written: at once if the database is not new, or if other servers share it.
type written struct {
	once sync.Once
	done chan struct{}
}

func newWritten(o *Options, fresh bool) *written {
	w := &written{done: make(chan struct{})}
	if o.SharedDatastore || !fresh {
		w.note()
	}
	return w
}

func (w *written) note() { w.once.Do(func() { close(w.done) }) }

// byClients notes that a client writes.
func (w *written) byClients(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && !loopback.Made(r) {
			w.note()
		}
		next.ServeHTTP(rw, r)
	})
}
