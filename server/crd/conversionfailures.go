package crd

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
)

// conversionFailures counts, by API group, the calls of conversion webhooks that returned no converted objects.
type conversionFailures struct {
	mu     sync.Mutex
	groups map[string]uint64
}

// add counts a request that failed.
func (f *conversionFailures) add(r *http.Request) {
	if r.GetBody == nil {
		return
	}
	body, err := r.GetBody()
	if err != nil {
		return
	}
	defer body.Close()
	var review struct {
		Request struct{ DesiredAPIVersion string }
	}
	if json.NewDecoder(body).Decode(&review) != nil {
		return
	}
	group, _, _ := strings.Cut(review.Request.DesiredAPIVersion, "/")
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.groups == nil {
		f.groups = map[string]uint64{}
	}
	f.groups[group]++
}

// wrap returns a wrapper that also counts failed calls of the webhooks.
func (f *conversionFailures) wrap(wrapper webhook.AuthenticationInfoResolverWrapper) webhook.AuthenticationInfoResolverWrapper {
	return func(resolver webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
		resolver = wrapper(resolver)
		return &webhook.AuthenticationInfoResolverDelegator{
			ClientConfigForFunc: func(hostPort string) (*rest.Config, error) {
				return f.counted(resolver.ClientConfigFor(hostPort))
			},
			ClientConfigForServiceFunc: func(name, namespace string, port int) (*rest.Config, error) {
				return f.counted(resolver.ClientConfigForService(name, namespace, port))
			},
		}
	}
}

func (f *conversionFailures) counted(config *rest.Config, err error) (*rest.Config, error) {
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return countedTransport{next, f} })
	return config, nil
}

type countedTransport struct {
	http.RoundTripper
	conversionFailures *conversionFailures
}

// RoundTrip implements http.RoundTripper. It reads the whole response, as the caller would.
func (t countedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(r)
	if err != nil {
		t.conversionFailures.add(r)
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.conversionFailures.add(r)
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	var review struct {
		Response struct{ Result metav1.Status }
	}
	if json.Unmarshal(body, &review) != nil || review.Response.Result.Status != metav1.StatusSuccess {
		t.conversionFailures.add(r)
	}
	return response, nil
}
