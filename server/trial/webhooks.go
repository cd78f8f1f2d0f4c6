package trial

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	registrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/sqube/sqube/server"
	"github.com/sqube/sqube/server/pipenet"
)

// webhooksAddress is where the webhooks of a copy are, on its network.
var webhooksAddress = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2), Port: 443}

// webhooks stand for the webhooks of admission that a copy has. The server of the copy decides as ever which it calls, and calls these. They allow
// everything, or ask those that they stand for, if that is allowed.
type webhooks struct {
	outside  *outsideWebhooks
	listener *pipenet.Listener // of the bubble

	mu      sync.Mutex
	begun   bool
	targets map[string]target        // by path
	called  map[string]*webhookCalls // by path, since begin
}

// target is a webhook that another one stands for.
type target struct {
	name   string
	config registrationv1.WebhookClientConfig
	asks   bool
	wait   time.Duration
}

// webhookCalls are the calls of a webhook.
type webhookCalls struct {
	name  string
	asked bool
	times int
}

// outsideWebhooks are shared by the bubbles.
type outsideWebhooks struct {
	allowed     []string // addresses, HOST or HOST:PORT
	certificate tls.Certificate
	trust       []byte
	idle        chan *call
	calls       chan *call
}

// call is a call of a webhook outside. A bubble gets it from idle, and its clock stands still until it is done.
type call struct {
	target target
	body   []byte
	done   chan error // body is the answer
}

// prepareWebhooks is called outside.
func prepareWebhooks(allowed []string) (*outsideWebhooks, error) {
	o := &outsideWebhooks{allowed: allowed}
	var err error
	if o.certificate, o.trust, err = certificateFor(webhooksAddress.IP); err != nil {
		return nil, err
	}
	if len(allowed) == 0 {
		return o, nil
	}
	const atOnce = 8
	o.idle, o.calls = make(chan *call, atOnce), make(chan *call)
	for range atOnce {
		o.idle <- &call{done: make(chan error)}
		go func() {
			for c := range o.calls {
				answer, err := ask(c.target, c.body)
				c.body = answer
				c.done <- err
			}
		}()
	}
	return o, nil
}

// configure prepares a server of a copy. It is called inside.
func (o *outsideWebhooks) configure(options *server.Options) *webhooks {
	w := &webhooks{outside: o, listener: pipenet.NewListener(webhooksAddress), targets: map[string]target{}, called: map[string]*webhookCalls{}}
	options.Divert = w.divert
	address := webhooksAddress.String()
	options.Allow(address)
	dial := options.Dial
	options.Dial = func(ctx context.Context, network, to string) (net.Conn, error) {
		if to == address {
			return w.listener.Dial(ctx, network, to)
		}
		return dial(ctx, network, to)
	}
	served := &http.Server{Handler: w, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { // until the bubble is left
		_ = served.Serve(tls.NewListener(w.listener, &tls.Config{Certificates: []tls.Certificate{o.certificate}}))
	}()
	return w
}

// divert has a webhook lead here.
func (w *webhooks) divert(d server.Diverted) {
	path := "/" + url.PathEscape(d.Configuration) + "/" + url.PathEscape(d.Name)
	t := target{name: d.Configuration + "/" + d.Name, config: *d.Client.DeepCopy(), wait: time.Duration(d.TimeoutSeconds) * time.Second}
	// One with side effects must not be asked about what never happens.
	t.asks = w.outside.allows(&t.config) && (d.SideEffects == registrationv1.SideEffectClassNone || d.SideEffects == registrationv1.SideEffectClassNoneOnDryRun)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.targets[path] = t
	to := "https://" + webhooksAddress.String() + path
	*d.Client = registrationv1.WebhookClientConfig{URL: &to, CABundle: w.outside.trust}
}

// begin begins to count.
func (w *webhooks) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begun = true
}

// ServeHTTP answers a review of admission.
func (w *webhooks) ServeHTTP(to http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(to, err.Error(), http.StatusBadRequest)
		return
	}
	t := w.count(r.URL.EscapedPath())
	answer, err := w.answer(t, body)
	if err != nil {
		http.Error(to, err.Error(), http.StatusInternalServerError)
		return
	}
	to.Header().Set("Content-Type", "application/json")
	_, _ = to.Write(answer) // the client has gone
}

func (w *webhooks) count(path string) target {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.targets[path]
	if w.begun {
		c := w.called[path]
		if c == nil {
			c = &webhookCalls{name: t.name, asked: t.asks}
			w.called[path] = c
		}
		c.times++
	}
	return t
}

// answer answers a review, or has a webhook outside answer it.
func (w *webhooks) answer(t target, body []byte) ([]byte, error) {
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &review); err != nil || review.Request == nil {
		return nil, errors.Join(errors.New("it is no AdmissionReview"), err)
	}
	if !t.asks {
		return json.Marshal(&admissionv1.AdmissionReview{TypeMeta: review.TypeMeta, Response: &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}})
	}
	dry := true // nothing is done in the cluster where it is
	review.Request.DryRun = &dry
	body, err := json.Marshal(&review)
	if err != nil {
		return nil, err
	}
	c := <-w.outside.idle
	defer func() { w.outside.idle <- c }()
	c.target, c.body = t, body
	w.outside.calls <- c
	err = <-c.done
	return c.body, err
}

// allows reports whether a webhook may be called.
func (o *outsideWebhooks) allows(c *registrationv1.WebhookClientConfig) bool {
	address, _, err := addressOf(c)
	host, _, _ := net.SplitHostPort(address)
	return err == nil && slices.ContainsFunc(o.allowed, func(allowed string) bool { return allowed == "*" || allowed == address || allowed == host })
}

// addressOf returns where a webhook is: that of a Service by its name in the cluster's DNS.
func addressOf(c *registrationv1.WebhookClientConfig) (address, path string, err error) {
	if s := c.Service; s != nil {
		port, path := int32(443), ""
		if s.Port != nil {
			port = *s.Port
		}
		if s.Path != nil {
			path = *s.Path
		}
		return fmt.Sprintf("%s.%s.svc:%d", s.Name, s.Namespace, port), path, nil
	}
	if c.URL == nil {
		return "", "", errors.New("it has no address")
	}
	u, err := url.Parse(*c.URL)
	if err != nil {
		return "", "", err
	}
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443")), u.RequestURI(), nil
}

// ask calls a webhook. It is called outside.
func ask(t target, body []byte) ([]byte, error) {
	address, path, err := addressOf(&t.config)
	if err != nil {
		return nil, err
	}
	trusted := &tls.Config{}
	if len(t.config.CABundle) > 0 {
		trusted.RootCAs = x509.NewCertPool()
		trusted.RootCAs.AppendCertsFromPEM(t.config.CABundle)
	}
	transport := &http.Transport{TLSClientConfig: trusted, Proxy: http.ProxyFromEnvironment}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: cmp.Or(t.wait, 10*time.Second)}
	answer, err := client.Post("https://"+address+"/"+strings.TrimPrefix(path, "/"), "application/json", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	const most = 3 << 20
	text, err := io.ReadAll(io.LimitReader(answer.Body, most))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("the webhook answers %s", answer.Status)
	}
	return text, err
}

// moreThan returns the webhooks that were called more often than in a twin.
func (w *webhooks) moreThan(twin *webhooks) (all []Webhook) {
	w.mu.Lock()
	defer w.mu.Unlock()
	twin.mu.Lock()
	defer twin.mu.Unlock()
	for _, path := range slices.Sorted(maps.Keys(w.called)) {
		c := w.called[path]
		times := c.times
		if other := twin.called[path]; other != nil {
			times -= other.times
		}
		if times > 0 {
			all = append(all, Webhook{Name: c.name, Called: c.asked, Times: times})
		}
	}
	return all
}
