package server

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/features"
	serverfilters "k8s.io/apiserver/pkg/server/filters"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"

	"github.com/sqube/sqube/server/access"
	"github.com/sqube/sqube/server/audit"
	"github.com/sqube/sqube/server/connections"
	"github.com/sqube/sqube/server/stack"
	"github.com/sqube/sqube/sqlstore/apistorage"
)

// requestInfo parses paths into verb, resource, namespace and name.
var requestInfo = &request.RequestInfoFactory{
	APIPrefixes:          sets.NewString("api", "apis"),
	GrouplessAPIPrefixes: sets.NewString("api"),
}

// longRunning reports whether a request has no time limit: watches, and connections into pods.
var longRunning = serverfilters.BasicLongRunningRequestCheck(
	sets.NewString("watch", "proxy"),
	sets.NewString("attach", "exec", "proxy", "log", "portforward"),
)

// chain is the filters that every request passes before the handlers.
type chain struct {
	options        *Options
	serializer     runtime.NegotiatedSerializer
	authentication *access.Authentication
	authorizer     authorizer.Authorizer
	audit          *audit.Log
	// fairness decides which requests run when there are many; nil if priority and fairness is off.
	fairness    utilflowcontrol.Interface
	counts      flowcontrolrequest.StorageObjectCountTracker
	connections *connections.Connections
	// serves reports whether a resource is built in.
	serves func(version schema.GroupVersion, resource string) bool
	// serving ends when long-running requests must end.
	serving  context.Context
	outbound outbound
}

// wrap adds the filters to the handlers. A request passes them in the order of this list.
func (c *chain) wrap(handler http.Handler) http.Handler {
	o := c.options
	filters := []func(http.Handler) http.Handler{
		withStack,
		apifilters.WithAuditInit,
		func(h http.Handler) http.Handler { return serverfilters.WithPanicRecovery(h, requestInfo) },
		apifilters.WithRequestReceivedTimestamp,
		func(h http.Handler) http.Handler { return apifilters.WithRequestInfo(h, requestInfo) },
		c.connections.Admit,
		func(h http.Handler) http.Handler { return connections.LongRunning(h, longRunning, o.RequestTimeout) },
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
		func(h http.Handler) http.Handler { return whileServing(h, c.serving) },
		withSlowClientDetection,
		func(h http.Handler) http.Handler {
			return apifilters.WithRequestDeadline(h, c.audit.Backend, c.audit.Policy, longRunning, c.serializer, o.RequestTimeout)
		},
		c.withTimeout,
		apifilters.WithWarningRecorder,
		func(h http.Handler) http.Handler {
			return serverfilters.WithCORS(h, o.CORSAllowedOrigins, nil, nil, nil, "true")
		},
		func(h http.Handler) http.Handler {
			unauthorized := apifilters.WithFailedAuthenticationAudit(apifilters.Unauthorized(c.serializer), c.audit.Backend, c.audit.Policy)
			return apifilters.WithAuthentication(h, c.authentication.Authenticator, unauthorized,
				c.authentication.Audiences, c.authentication.RequestHeader)
		},
		c.connections.Authenticated,
		func(h http.Handler) http.Handler {
			if !c.outbound.traced {
				return h
			}
			return apifilters.WithTracing(h, c.outbound.tracing)
		},
		func(h http.Handler) http.Handler {
			return apifilters.WithAudit(h, c.audit.Backend, c.audit.Policy, longRunning)
		},
		func(h http.Handler) http.Handler {
			if utilfeature.DefaultFeatureGate.Enabled(features.ConstrainedImpersonation) {
				return impersonation.WithConstrainedImpersonation(h, c.authorizer, c.serializer)
			}
			return impersonation.WithImpersonation(h, c.authorizer, c.serializer)
		},
		c.limit,
		func(h http.Handler) http.Handler {
			return apifilters.WithAuthorization(h, c.authorizer, c.serializer)
		},
		withAuthor,
		withMemoryAccount,
	}
	for i := len(filters) - 1; i >= 0; i-- {
		handler = filters[i](handler)
	}
	return handler
}

// withTimeout responds with 504 to requests that take too long. This takes a goroutine for each request, which would cost more
// than a get of a built-in resource. Those gets do without it: everything they wait for ends with their context.
func (c *chain) withTimeout(next http.Handler) http.Handler {
	limited := connections.UntilDone(func(h http.Handler) http.Handler {
		return serverfilters.WithTimeoutForNonLongRunningRequests(h, longRunning)
	}, withStack(next))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if info, ok := request.RequestInfoFrom(r.Context()); ok && info.Verb == "get" && info.Subresource == "" &&
			c.serves(schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}, info.Resource) {
			next.ServeHTTP(w, r)
			return
		}
		limited.ServeHTTP(w, r)
	})
}

// limit queues or rejects requests while too many run: by priority and fairness (KEP-1040), or by number alone if that is
// off.
func (c *chain) limit(next http.Handler) http.Handler {
	o := c.options
	if c.fairness == nil {
		return serverfilters.WithMaxInFlightLimit(next, o.MaxInFlight, o.MaxMutatingInFlight, longRunning)
	}
	work := flowcontrolrequest.NewWorkEstimator(c.counts.Get, c.fairness.GetInterestedWatchCount, flowcontrolrequest.DefaultWorkEstimatorConfig(), c.fairness.GetMaxSeats)
	return serverfilters.WithPriorityAndFairness(next, longRunning, c.fairness, work, o.RequestTimeout/4)
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
		defer cancel()
		defer context.AfterFunc(serving, cancel)()
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
