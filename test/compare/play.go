package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// requestTimeout limits a request, including watches.
const requestTimeout = 2 * time.Minute

// player runs scripts on one server.
type player struct {
	url  string
	http *http.Client
	kube kubernetes.Interface
}

func newPlayer(kubeconfig string) (*player, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // no client-side limit
	config.Timeout = requestTimeout
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	// No implicit Accept-Encoding: only what the script says.
	config.DisableCompression = true
	client, err := rest.HTTPClientFor(config)
	return &player{url: config.Host, http: client, kube: kube}, err
}

// play sends the requests in sequence, each after the end of the previous response. It returns the responses.
func (p *player) play(ctx context.Context, s script) ([]answer, error) {
	vars := variables{"namespace": "compare-" + s.name + "-" + rand.String(5)}
	if err := p.prepare(ctx, vars["namespace"]); err != nil {
		return nil, fmt.Errorf("preparing a namespace: %w", err)
	}
	answers := make([]answer, len(s.requests))
	for i, r := range s.requests {
		a, err := p.send(ctx, r, vars)
		if err != nil {
			return nil, fmt.Errorf("%s.http:%d: %w", s.name, r.line, err)
		}
		answers[i] = a
	}
	return answers, nil
}

// send sends a request, repeatedly if it waits for a status, and keeps what it captures from the response.
func (p *player) send(ctx context.Context, r request, vars variables) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	a, err := p.ask(ctx, r, vars)
	for err == nil && r.until != 0 && a.code != r.until {
		select {
		case <-ctx.Done():
			return answer{}, fmt.Errorf("no response with status %d, but\n%s", r.until, a)
		case <-time.After(50 * time.Millisecond):
			a, err = p.ask(ctx, r, vars)
		}
	}
	if err != nil {
		return answer{}, err
	}
	for _, c := range r.captures {
		if vars[c[0]], err = a.field(c[1]); err != nil {
			return answer{}, fmt.Errorf("%w in the response\n%s", err, a)
		}
	}
	return a, nil
}

// ask sends a request once.
func (p *player) ask(ctx context.Context, r request, vars variables) (answer, error) {
	body, contentType, err := encode(vars.in(strings.TrimSpace(r.body)), r.encoding)
	if err != nil {
		return answer{}, err
	}
	sent, err := http.NewRequestWithContext(ctx, r.method, p.url+vars.inPath(r.path), body)
	if err != nil {
		return answer{}, err
	}
	if body != nil {
		sent.Header.Set("Content-Type", contentType)
	}
	sent.Header.Set("User-Agent", "compare/1.0")
	for _, h := range r.headers {
		sent.Header.Add(h[0], vars.in(h[1]))
		if strings.EqualFold(h[0], "Content-Type") { // Add would put it after the default
			sent.Header.Set(h[0], vars.in(h[1]))
		}
	}
	response, err := p.http.Do(sent)
	if err != nil && strings.Contains(err.Error(), "stream error") { // the handler has panicked
		return answer{text: "no response"}, nil
	}
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}, err
	}
	return newAnswer(response, read, vars), nil
}

// bundle is the name of the ConfigMap that a controller creates in every namespace. Its content is not compared.
const bundle = "kube-root-ca.crt"

// prepare creates a namespace with what the controllers of a cluster put into it. kube-apiserver alone has no controllers.
func (p *player) prepare(ctx context.Context, name string) error {
	core := p.kube.CoreV1()
	if _, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := core.ServiceAccounts(name).Create(ctx, account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	root := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: bundle}}
	if _, err := core.ConfigMaps(name).Create(ctx, root, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}
