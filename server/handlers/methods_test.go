package handlers_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestRefusals compares the responses to requests that aren't served with those recorded from kube-apiserver.
func TestRefusals(t *testing.T) {
	api := newAPI(t, options{})
	const (
		notFound   = "the server could not find the requested resource"
		notAllowed = "the server does not allow this method on the requested resource"
		unsupport  = "415: Unsupported Media Type"
		objects    = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
		streams    = ", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
		notAccept  = "406: Not Acceptable\n\nAvailable representations: "
	)
	for _, test := range []struct {
		method, path string
		header       string // "Name: value"
		code         int
		message      string
	}{
		{"GET", "/api/v1/nosuch", "", 404, notFound},
		{"GET", "/api/v2", "", 404, notFound},
		{"GET", "/api/v2/pods", "", 404, notFound},
		{"GET", "/api/v1//pods", "", 404, notFound},
		{"GET", "/api/v1/namespaces/default//pods", "", 404, notFound},
		{"GET", "/api/v1/watch/namespaces/default/pods//foo", "", 404, notFound},
		{"GET", "/apis/apps/v9", "", 404, notFound},
		{"GET", "/apis/apps/v9/deployments", "", 404, notFound},
		{"GET", "/apis/apps/v1/nosuch", "", 404, notFound},
		{"GET", "/apis/storage.k8s.io/v1alpha1", "", 404, notFound},
		{"GET", "/apis/apiregistration.k8s.io/v1/nosuch", "", 404, notFound},

		// A namespaced object without its namespace, and vice versa.
		{"GET", "/api/v1/pods/foo", "", 404, notFound},
		{"GET", "/api/v1/namespaces/default/nodes", "", 404, notFound},
		{"GET", "/api/v1/namespaces/default/nodes/n1", "", 404, notFound},
		{"GET", "/api/v1/bindings", "", 404, notFound},
		{"GET", "/apis/apps/v1/namespaces/default", "", 404, notFound},
		{"GET", "/apis/apps/v1/namespaces/default/status", "", 404, notFound},

		{"GET", "/api/v1/namespaces/default/pods/foo/nosuch", "", 404, notFound},
		{"GET", "/api/v1/namespaces/default/pods/foo/status/more", "", 404, notFound},
		{"GET", "/api/v1/namespaces/default/status/x", "", 404, notFound},
		{"GET", "/api/v1/namespaces/default/pods/foo%2Fbar", "", 404, notFound},
		{"GET", "/api/v1/proxy/nodes/x", "", 404, notFound},

		{"GET", "/api/v1/watch/nosuch", "", 404, notFound},
		{"GET", "/api/v1/watch/namespaces/default/status", "", 404, notFound},
		{"GET", "/api/v1/watch/namespaces/default/pods/foo/status", "", 404, notFound},
		{"POST", "/api/v1/watch/pods", "", 405, notAllowed},

		{"POST", "/api/v1/pods", "", 405, notAllowed},
		{"PUT", "/api/v1/pods", "", 405, notAllowed},
		{"OPTIONS", "/api/v1/pods", "", 405, notAllowed},
		{"DELETE", "/api/v1/pods", "", 405, notAllowed},
		{"HEAD", "/api/v1/namespaces", "", 405, notAllowed},
		{"GET", "/api/v1/namespaces/default/finalize", "", 405, notAllowed},
		{"GET", "/api/v1/namespaces/default/bindings", "", 405, notAllowed},
		{"DELETE", "/api/v1/namespaces/default/pods/foo/log", "", 405, notAllowed},
		{"PUT", "/api/v1/namespaces/default/pods/foo/binding", "", 405, notAllowed},
		{"GET", "/apis/authorization.k8s.io/v1/subjectaccessreviews", "", 405, notAllowed},
		{"POST", "/apis/apiregistration.k8s.io/v1/apiservices/x/status", "", 405, notAllowed},
		{"POST", "/api", "", 405, notAllowed},

		{"PATCH", "/api/v1/namespaces/default/pods/foo", "Content-Type: application/json", 415, unsupport},
		{"PATCH", "/api/v1/namespaces/default/pods/foo", "", 415, unsupport},
		{"GET", "/apis/apps/v1/", "Content-Type: text/plain", 415, unsupport},

		{"GET", "/api/v1/namespaces/default/pods", "Accept: text/plain", 406, notAccept + objects + streams},
		{"GET", "/api/v1/namespaces/default/pods", "Accept: application/*", 406, notAccept + objects + streams},
		{"GET", "/api/v1/namespaces/default/pods/foo/log", "Accept: image/png", 406, notAccept + "text/plain, " + objects},
		{"GET", "/api", "Accept: text/plain", 406, notAccept + objects},
		{"GET", "/api/v1", "Accept: text/plain", 406, notAccept + objects},
	} {
		t.Run(test.method+test.path+" "+test.header, func(t *testing.T) {
			name, value, _ := strings.Cut(test.header, ": ")
			answer := do(t, api, test.method, test.path, name, value)
			if answer.Code != test.code {
				t.Fatalf("%d %s", answer.Code, answer.Body)
			}
			var status metav1.Status
			if err := json.Unmarshal(answer.Body.Bytes(), &status); err != nil {
				t.Fatalf("not a Status: %s", answer.Body)
			}
			if status.Message != test.message || int(status.Code) != test.code || status.Kind != "Status" {
				t.Errorf("got %+v", status)
			}
		})
	}
}

// TestOtherGroupsGoToCustom checks that only requests for groups that are not built in go to the handler of custom resources.
func TestOtherGroupsGoToCustom(t *testing.T) {
	api := newAPI(t, options{})
	for _, path := range []string{"/apis/nosuch.group", "/apis/nosuch.group/", "/apis/nosuch.group/v1", "/apis/nosuch.group/v1/things",
		"/apis/nosuch.group/v1/namespaces/x/things/y/status", "/apis/internal.apiserver.k8s.io", "/apis//v1/pods"} {
		answer := do(t, api, http.MethodGet, path)
		if answer.Code != http.StatusNotFound || answer.Body.String() != "404 page not found\n" {
			t.Errorf("%s: %d %s", path, answer.Code, answer.Body)
		}
	}
	for _, path := range []string{"/apisx", "/apix"} {
		if answer := do(t, api, http.MethodGet, path); answer.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, answer.Code)
		}
	}
}
