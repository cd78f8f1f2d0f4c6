package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	_ "unsafe" // for go:linkname

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	controlplane "k8s.io/kubernetes/pkg/controlplane/apiserver"

	"github.com/sqube/sqube/test/surface"
)

// apiVersionPriorities are kube-apiserver's priorities of all group versions, which it does not export.
//
//go:linkname apiVersionPriorities k8s.io/kubernetes/cmd/kube-apiserver/app.apiVersionPriorities
var apiVersionPriorities map[schema.GroupVersion]controlplane.APIServicePriority

// served returns what a kube-apiserver with additional flags shows over HTTP. It is not started: what it shows does not depend
// on its state, so its etcd is a server that knows no
// method.
func served(flags []string) ([]surface.Item, error) {
	dir, err := os.MkdirTemp("", "surface")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	etcd := grpc.NewServer()
	defer etcd.Stop()
	go etcd.Serve(listener)
	server, err := handler(dir, append([]string{"--etcd-servers=http://" + listener.Addr().String()}, flags...))
	if err != nil {
		return nil, fmt.Errorf("building kube-apiserver: %w", err)
	}
	var items []surface.Item
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		items = append(items, surface.Checks(path, get(server, path+"?verbose", ""))...)
	}
	var groups apidiscoveryv2.APIGroupDiscoveryList
	for _, path := range []string{"/api", "/apis"} {
		var some apidiscoveryv2.APIGroupDiscoveryList
		if err := json.Unmarshal([]byte(get(server, path, "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")), &some); err != nil {
			return nil, err
		}
		groups.Items = append(groups.Items, some.Items...)
	}
	items = append(items, surface.Resources(groups.Items)...)
	for _, group := range groups.Items {
		for _, version := range group.Versions {
			p, found := apiVersionPriorities[schema.GroupVersion{Group: group.Name, Version: version.Version}]
			if found {
				items = append(items, surface.Priority(group.Name, version.Version, p.Group, p.Version))
			}
		}
	}
	metrics, err := surface.Metrics()
	return slices.Concat(items, metrics), err
}

// handler returns what answers a kube-apiserver's requests, without authentication and authorization.
func handler(dir string, flags []string) (http.Handler, error) {
	klog.SetLogger(logr.Discard()) // it waits for etcd in vain
	certificate, key, err := cert.GenerateSelfSignedCertKey("surface", nil, nil)
	if err != nil {
		return nil, err
	}
	certificateFile, keyFile := filepath.Join(dir, "surface.crt"), filepath.Join(dir, "surface.key")
	for file, text := range map[string][]byte{certificateFile: certificate, keyFile: key} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return nil, err
		}
	}
	o := options.NewServerRunOptions()
	sets := o.Flags()
	all := sets.FlagSet("all")
	for _, set := range sets.FlagSets {
		all.AddFlagSet(set)
	}
	if err := all.Parse(append([]string{
		"--cert-dir=" + dir, "--bind-address=127.0.0.1", "--advertise-address=192.0.2.1",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + keyFile,
		"--service-account-signing-key-file=" + keyFile, "--authorization-mode=Node,RBAC",
		"--proxy-client-cert-file=" + certificateFile, "--proxy-client-key-file=" + keyFile, // sqube always has one
	}, flags...)); err != nil {
		return nil, err
	}
	if o.SecureServing.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil { // nobody is answered there
		return nil, err
	}
	if err := o.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return nil, err
	}
	completed, err := o.Complete(context.Background())
	if err != nil {
		return nil, err
	}
	config, err := apiserver.NewConfig(completed)
	if err != nil {
		return nil, err
	}
	complete, err := config.Complete()
	if err != nil {
		return nil, err
	}
	server, err := apiserver.CreateServerChain(complete)
	if err != nil {
		return nil, err
	}
	if _, err := server.PrepareRun(); err != nil {
		return nil, err
	}
	return server.GenericAPIServer.Handler.Director, nil
}

// get returns the body of a response, whatever its status.
func get(server http.Handler, path, accept string) string {
	response := httptest.NewRecorder()
	request := httptest.NewRequest(http.MethodGet, path, nil)
	request.Header.Set("Accept", accept)
	server.ServeHTTP(response, request)
	return response.Body.String()
}
