// Package envtest lets controller-runtime's envtest run on sqube. Envtest starts the programs etcd and kube-apiserver in the folder
// KUBEBUILDER_ASSETS. Write makes such a folder with scripts that run sqube.
//
//	test ──► etcd            has the data directory
//	    └──► kube-apiserver ──► asks etcd for the data directory ──► serves it
package envtest

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/sqube/sqube/server/wholefile"
)

// The commands of sqube that stand in for programs.
const (
	EtcdCommand   = "envtest-etcd"
	APIServerFlag = "envtest" // of sqube serve
)

// Write creates the folder dir if it does not exist. In it, it writes kube-apiserver and etcd, which run the program sqube, and
// kubectl, which runs the program kubectl. All arguments are paths; kubectl may be "" if there is none.
func Write(dir, sqube, kubectl string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	const missing = "echo 'kubectl was not found on PATH when sqube envtest wrote this file: install it and run sqube envtest again, or name it with --kubectl' >&2\nexit 127\n"
	for name, script := range map[string]string{
		"kube-apiserver": run(sqube, "serve", "--"+APIServerFlag),
		"etcd":           run(sqube, EtcdCommand),
		"kubectl":        run(kubectl),
	} {
		if name == "kubectl" && kubectl == "" {
			script = missing
		}
		// A test that is starting a program finds the old one or the new one.
		err := wholefile.Replace(filepath.Join(dir, name), 0o755, func(f *os.File) error {
			_, err := f.WriteString("#!/bin/sh\n" + script)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// run returns a script that executes the program with the given arguments before its own.
func run(program string, arguments ...string) string {
	words := append([]string{quote(program)}, arguments...)
	return "exec " + strings.Join(words, " ") + ` "$@"` + "\n"
}

// quote quotes text for a shell.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// Etcd is the stand-in for etcd. It stores nothing itself: it serves health checks, and gives API servers their data directory.
type Etcd struct {
	DataDir           string
	ListenClientURLs  []string
	CertFile, KeyFile string // for client URLs with https
}

// AddFlags adds the flags of etcd that matter here, and those that envtest looks for in etcd's help.
func (e *Etcd) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&e.DataDir, "data-dir", "default.etcd", "Folder of the state: a database, and keys that the API server creates.")
	fs.StringSliceVar(&e.ListenClientURLs, "listen-client-urls", []string{"http://localhost:2379"}, "Where to listen.")
	fs.StringVar(&e.CertFile, "cert-file", "", "Certificate for client URLs with https.")
	fs.StringVar(&e.KeyFile, "key-file", "", "Key of --cert-file.")
	fs.Bool("unsafe-no-fsync", true, "Has no effect: nothing is ever synced to disk.")
}

// statePath serves the state for API servers.
const statePath = "/sqube/state"

// state is what the stand-in for kube-apiserver gets from the one for etcd.
type state struct {
	DataDir string `json:"dataDir"` // absolute
}

// Run listens on all client URLs until ctx ends.
func (e *Etcd) Run(ctx context.Context) error {
	dir, err := filepath.Abs(e.DataDir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	server := &http.Server{Handler: handler(dir), ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, len(e.ListenClientURLs))
	for _, text := range e.ListenClientURLs {
		at, err := url.Parse(text)
		if err != nil || at.Host == "" {
			return errors.Join(fmt.Errorf("--listen-client-urls %q must be URLs such as http://127.0.0.1:2379", text), server.Close())
		}
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", at.Host)
		if err != nil {
			return errors.Join(err, server.Close())
		}
		go func() {
			if at.Scheme == "https" {
				ended <- server.ServeTLS(listener, e.CertFile, e.KeyFile)
			} else {
				ended <- server.Serve(listener)
			}
		}()
	}
	select {
	case <-ctx.Done():
		return server.Close() // clients retry health checks
	case err := <-ended:
		return errors.Join(err, server.Close())
	}
}

// handler serves etcd's health checks and version.
func handler(dataDir string) http.Handler {
	mux := http.NewServeMux()
	for path, answer := range map[string]any{
		"/health":  map[string]string{"health": "true", "reason": ""},
		"/version": map[string]string{"etcdserver": "3.6.8", "etcdcluster": "3.6.0", "storage": "3.6.0"},
		statePath:  state{dataDir},
	} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(answer) // the client has gone
		})
	}
	for _, path := range []string{"/livez", "/readyz"} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	}
	return mux
}

// DataDir gets the data directory from the stand-in for etcd at endpoint. trust is for endpoints with https.
func DataDir(ctx context.Context, endpoint string, trust *tls.Config) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint+statePath, nil)
	if err != nil {
		return "", err
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: trust, DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	var found state
	if err := json.NewDecoder(response.Body).Decode(&found); err != nil || found.DataDir == "" {
		return "", fmt.Errorf("%s is not served by the stand-in for etcd that sqube envtest writes: use both from one folder", endpoint)
	}
	return found.DataDir, nil
}
