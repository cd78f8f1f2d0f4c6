package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"syscall"

	"github.com/gorilla/mux"
	"github.com/spf13/pflag"
	servermux "k8s.io/apiserver/pkg/server/mux"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/server/routes"

	"github.com/sqube/sqube/server/connections"
)

// addFeatureFlags adds kube-apiserver's flags for priority and fairness and for debugging, each to its section.
func addFeatureFlags(limits, debug *pflag.FlagSet, o *genericoptions.FeatureOptions) {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.AddFlags(all)
	for _, flag := range []struct {
		section     *pflag.FlagSet
		name, usage string
	}{
		{limits, "enable-priority-and-fairness", "Share the sum of both limits among users and kinds of requests, according to FlowSchemas. If false, each limit applies separately."},
		{debug, "profiling", "Serve Go's profiles at /debug/pprof/, and the log level at /debug/flags/v (PUT). RBAC allows both to administrators only."},
		{debug, "contention-profiling", "Record where goroutines wait, for the profile named block. This slows the server down."},
		{debug, "debug-socket-path", "Unix socket that serves profiles and the log level without authentication. Only the server's user can open it."},
	} {
		found := all.Lookup(flag.name)
		found.Usage = flag.usage
		flag.section.AddFlag(found)
	}
}

// debug returns the handler of profiles and of the log level.
func (s *Server) debug() http.Handler {
	paths := servermux.NewPathRecorderMux("debug")
	routes.Profiling{}.Install(paths)
	if set := s.options.SetLogLevel; set != nil {
		routes.DebugFlags{}.Install(paths, "v", routes.StringFlagPutHandler(set))
	}
	return paths
}

// installProfiling serves profiles and the log level to users that RBAC permits.
func (s *Server) installProfiling(router *mux.Router) {
	o := s.options.Features
	if o.EnableContentionProfiling && (o.EnableProfiling || o.DebugSocketPath != "") {
		runtime.SetBlockProfileRate(1)
	}
	if !o.EnableProfiling || s.options.Hosted != nil {
		return
	}
	handler := s.debug()
	router.PathPrefix("/debug/pprof").Handler(handler)
	router.PathPrefix("/debug/flags").Handler(handler)
}

// listenProfiling listens on a Unix socket at path that only this user may open. It returns nil for an empty path.
func listenProfiling(path string) (net.Listener, error) {
	if path == "" {
		return nil, nil
	}
	info, err := os.Lstat(path)
	if err == nil && info.Mode().Type() != os.ModeSocket {
		return nil, fmt.Errorf("--debug-socket-path %s is a file, not a socket: choose another path", path)
	}
	if err == nil {
		if other, err := net.Dial("unix", path); err == nil {
			return nil, errors.Join(fmt.Errorf("another process listens on --debug-socket-path %s: choose another path", path), other.Close())
		}
		err = os.Remove(path) // left by a process that has ended
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("--debug-socket-path: %w", err)
	}
	former := syscall.Umask(0o077) // of the whole process: a folder that is made meanwhile must stay usable
	defer syscall.Umask(former)
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("--debug-socket-path: %w", err)
	}
	return listener, nil
}

// serveProfiling serves on the debug socket until ctx ends.
func (s *Server) serveProfiling(ctx context.Context) error {
	server := &http.Server{Handler: s.debug(), ReadHeaderTimeout: connections.ReadHeaderTimeout}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })() // also aborts a profile in progress
	if err := server.Serve(s.debugSocket); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
