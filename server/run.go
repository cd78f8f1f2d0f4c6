package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	serverfilters "k8s.io/apiserver/pkg/server/filters"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/server/controllers"
)

// phase is a server's progress in shutting down.
//
//	serving ─► stopping: not ready and no longer announced, for at least --shutdown-delay-duration
//	        ─► draining: no new requests, watches end, requests finish
//	        ─► drained: in-process work ends
type phase struct {
	started  chan struct{} // closed when everything that runs alongside requests has been started
	stopping chan struct{}
	serving  context.Context // until draining
	drain    context.CancelFunc
	running  context.Context // until drained
	end      context.CancelFunc
}

func newPhase() phase {
	p := phase{started: make(chan struct{}), stopping: make(chan struct{})}
	p.serving, p.drain = context.WithCancel(context.Background())
	p.running, p.end = context.WithCancel(context.Background())
	return p
}

// dropTimeout is how long clients have to read the rest of their responses with Options.DropConnections.
const dropTimeout = time.Second

// Run serves on listener, or without one what ServeHTTP gets, until ctx ends. The server then becomes unready, and drains after the
// shutdown delay: it accepts no new requests, ends watches and lets running requests finish. Run returns when everything has stopped,
// or with an error that names what did not stop within --shutdown-grace-period. It must be called only once.
func (s *Server) Run(ctx context.Context, listener net.Listener) error {
	// In-process work must outlive the requests that are finishing.
	background, stopBackground := context.WithCancel(context.WithoutCancel(ctx))
	defer stopBackground()
	tasks := newTasks()
	failed := make(chan error, 1)
	fail := func(what string, err error) {
		if err != nil {
			select {
			case failed <- fmt.Errorf("%s: %w", what, err):
			default:
			}
		}
	}

	if s.options.Hosted != nil { // others live in the process
		tasks.panicked = fail
	}
	if err := s.audit.Start(); err != nil {
		return err
	}
	server := s.httpServer() // unused without a listener
	if listener != nil {
		tasks.start("serving", func() {
			if err := server.ServeTLS(s.connections.Listen(listener), "", ""); !errors.Is(err, http.ErrServerClosed) {
				fail("serving", err)
			}
		})
	}
	if s.debugSocket != nil {
		tasks.start("debug socket", func() { fail("serving --debug-socket-path", s.serveProfiling(background)) })
	}
	s.start(background, tasks, fail)

	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	close(s.phase.stopping)
	if err == nil {
		select {
		case <-time.After(s.options.ShutdownDelay):
		case err = <-failed:
		}
	}
	// Over the loopback, the server withdraws its address and deletes its Lease.
	withdrawing, cancel := context.WithTimeout(background, s.options.ShutdownGracePeriod)
	s.bootstrap.Withdrawn(withdrawing)
	cancel()
	grace, cancel := context.WithTimeout(background, s.options.ShutdownGracePeriod+s.options.ShutdownWatchTermination)
	defer cancel()
	s.inFlight.drain(grace, s.phase.drain)
	end := server.Shutdown
	switch {
	case listener == nil:
		end = s.options.Hosted.Answered
	case s.options.DropConnections:
		end = func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, dropTimeout)
			defer cancel()
			s.connections.WaitIdle(ctx)
			return server.Close()
		}
	}
	if late := end(grace); late != nil {
		slog.Warn("requests were still running at the end of --shutdown-grace-period and were cut off")
		late = server.Close()
		err = errors.Join(err, late)
	}
	stopBackground()
	err = errors.Join(err, tasks.wait(s.options.ShutdownGracePeriod))
	// Only now, since controllers that are still being built need informers. No more requests arrive, except from tasks that did not stop.
	return errors.Join(err, s.end())
}

func (s *Server) httpServer() *http.Server {
	server := &http.Server{
		Handler:   s.handler,
		TLSConfig: s.serving.Config(),
		ErrorLog:  slog.NewLogLogger(slog.Default().Handler(), slog.LevelDebug),
	}
	s.connections.Configure(server, s.options.Serving.HTTP2MaxStreamsPerConnection, s.options.RequestTimeout)
	return server
}

// notice implements dynamiccertificates.Listener. It holds one value if the content has changed since the last one was taken.
type notice chan struct{}

// Enqueue implements dynamiccertificates.Listener.
func (n notice) Enqueue() {
	select {
	case n <- struct{}{}:
	default:
	}
}

// start starts everything that runs alongside requests.
func (s *Server) start(ctx context.Context, tasks *tasks, fail func(string, error)) {
	if s.options.Hosted == nil {
		tasks.start("serving certificate", func() { s.serving.Run(ctx) })
	}
	if fleet := s.options.Fleet; fleet != nil {
		tasks.start("hosted clusters", func() {
			if s.bootstrap.Wait(ctx) == nil && s.crd.Wait(ctx) {
				fail("hosting clusters", fleet.Run(ctx, s))
			}
		})
	}
	changed := make(notice, 1)
	s.authentication.UserCA.AddListener(changed)
	tasks.start("certificates", func() {
		s.pki.KeepValid(ctx, changed, func(err error) { klog.ErrorS(err, "Renewing certificates failed; trying again") })
	})
	virtual := s.options.Virtual
	if !virtual { // it follows definitions, too
		tasks.start("admission", func() { s.admission.Run(ctx) })
	}
	tasks.start("custom resources", func() { s.crd.Run(ctx) })
	switch {
	case virtual && s.fairness != nil: // in its own time
		fairnessMarks.start(ctx.Done())
	case virtual:
	case s.fairness != nil:
		fairnessMarks.maintain(ctx)
	default:
		inFlightMarks.maintain(ctx)
	}
	if s.fairness != nil {
		tasks.start("priority and fairness", func() { fail("running priority and fairness", s.fairness.Run(ctx.Done())) })
	}
	tasks.start("aggregation", func() { s.aggregation.Run(ctx, s.options.Later) })
	tasks.start("bootstrap", func() {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		if !s.later(ctx) {
			cancel() // the hooks end without having begun
		}
		fail("preparing the cluster", s.bootstrap.Run(ctx, s.phase.stopping))
	})
	if !virtual {
		tasks.start("object counts", func() {
			if s.bootstrap.Wait(ctx) == nil {
				s.objectCounter.run(ctx, func() int64 { return s.store.Stats().Revision })
			}
		})
	}
	if coordinated() {
		tasks.start("coordinated leader election", func() {
			if s.bootstrap.Wait(ctx) == nil {
				fail("running coordinated leader election", s.coordinate(ctx))
			}
		})
	}
	if s.follower != nil {
		tasks.start("following the cluster", func() { fail("mirroring", s.follower.Run(ctx)) })
	}
	s.startWriters(ctx, tasks, fail)
	close(s.phase.started)
}

// startWriters starts what changes objects without a request, unless the server only reads.
func (s *Server) startWriters(ctx context.Context, tasks *tasks, fail func(string, error)) {
	if s.options.ReadOnly != "" {
		return
	}
	tasks.start("unconfirmed transactions", func() {
		if s.bootstrap.Wait(ctx) == nil && s.crd.Wait(ctx) {
			s.history.taker.Run(ctx)
		}
	})
	tasks.start("controllers", func() {
		// Controllers read discovery, and objects that bootstrap creates.
		if s.bootstrap.Wait(ctx) != nil || !s.crd.Wait(ctx) {
			return
		}
		config := s.controllers
		config.Track = tasks.track
		run := controllers.Run
		if s.options.SharedDatastore { // by one server at a time
			run = func(ctx context.Context, c controllers.Config) error { return controllers.RunAsLeader(ctx, c, s.id) }
		}
		fail("running the controllers", run(ctx, config))
	})
}

// later waits for Options.Later. It returns false if the server begins to stop before.
func (s *Server) later(ctx context.Context) bool {
	if s.options.Later == nil {
		return true
	}
	select {
	case <-s.options.Later:
		return true
	case <-s.phase.stopping:
	case <-ctx.Done():
	}
	return false
}

// Upstream's watermarks of requests are those of the process.
var (
	inFlightMarks = watermarks{start: serverfilters.StartMaxInFlightWatermarkMaintenance}
	fairnessMarks = watermarks{start: serverfilters.StartPriorityAndFairnessWatermarkMaintenance}
)

// watermarks are maintained once for all servers of the process.
type watermarks struct {
	start func(stop <-chan struct{})

	mu   sync.Mutex
	used int // by how many servers
	stop chan struct{}
}

// maintain maintains the watermarks at least until ctx ends.
func (w *watermarks) maintain(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.used++; w.used == 1 {
		w.stop = make(chan struct{})
		w.start(w.stop)
	}
	context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.used--; w.used == 0 {
			close(w.stop)
		}
	})
}

// Wait returns when the server is ready, or with an error when ctx ends.
func (s *Server) Wait(ctx context.Context) error { return s.bootstrap.Wait(ctx) }

// Kubeconfig returns a kubeconfig with a new client certificate for a user in groups.
func (s *Server) Kubeconfig(user string, groups ...string) ([]byte, error) {
	return s.pki.Kubeconfig("", user, groups, 0)
}

// Loopback returns a configuration for a user in groups whose requests stay in this process.
func (s *Server) Loopback(user string, groups ...string) *rest.Config {
	return s.loopback.ConfigOf(user, groups...)
}

// History is what has been changed. It shows all to everybody who has it.
func (s *Server) History() *changes.Log { return s.history.log }

// AdminKubeconfig is the path of the administrator's kubeconfig.
func (s *Server) AdminKubeconfig() string { return s.pki.AdminKubeconfig }
