package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/server/egressselector"
	"k8s.io/utils/ptr"
)

// Allow adds an address, HOST:PORT, to Outbound, also while the server runs.
func (o *Options) Allow(address string) { o.allowed.Store(address, true) }

// mayCall reports whether a server of a copy may connect to an address, host:port.
func (o *Options) mayCall(address string) bool {
	host, _, err := net.SplitHostPort(address)
	_, allowed := o.allowed.Load(address)
	return allowed || slices.ContainsFunc(o.Outbound, func(allowed string) bool {
		return allowed == "*" || allowed == address || err == nil && allowed == host
	})
}

// isolated reports whether the server does not connect to what its objects name.
func (o *Options) isolated() bool { return o.CopyOf != "" || o.ReadOnly != "" }

// mayCallServices reports whether it may connect to Services that objects name, whose addresses change.
func (o *Options) mayCallServices() bool { return !o.isolated() || slices.Contains(o.Outbound, "*") }

// refusal says what a copy does not connect to, and with what value of a flag it would.
func (o *Options) refusal(what, flag string) string {
	if o.ReadOnly != "" {
		return o.ReadOnly
	}
	return fmt.Sprintf("this is a copy of %s, which does not connect to %s: allow that with --from-outbound=%s", o.CopyOf, what, flag)
}

// limited returns connections through egress, which may be nil, to what a copy may call.
func (o *Options) limited(egress *egressselector.EgressSelector) (*egressselector.EgressSelector, error) {
	limits := map[egressselector.EgressType]utilnet.DialFunc{}
	for _, kind := range []egressselector.EgressType{egressselector.ControlPlane, egressselector.Cluster} {
		var through utilnet.DialFunc
		if egress != nil {
			var err error
			if through, err = egress.Lookup(kind.AsNetworkContext()); err != nil {
				return nil, err
			}
		}
		if through == nil {
			through = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext // net/http's default
		}
		limits[kind] = func(ctx context.Context, network, address string) (net.Conn, error) {
			if !o.mayCall(address) {
				return nil, errors.New(o.refusal(address, address))
			}
			return through(ctx, network, address)
		}
	}
	return egressselector.NewEgressSelectorWithMap(limits), nil
}

// Diverted is a webhook that is given another address.
type Diverted struct {
	Configuration, Name string
	SideEffects         admissionv1.SideEffectClass
	TimeoutSeconds      int32
	// Client is where the webhook is, to be changed.
	Client *admissionv1.WebhookClientConfig
}

// withoutCalls removes from a configuration the webhooks that a copy may not call, unless they are diverted.
func (o *Options) withoutCalls(object any) {
	switch c := object.(type) {
	case *admissionv1.ValidatingWebhookConfiguration:
		for i := range c.Webhooks {
			w := &c.Webhooks[i]
			o.divert(Diverted{c.Name, w.Name, ptr.Deref(w.SideEffects, admissionv1.SideEffectClassUnknown), ptr.Deref(w.TimeoutSeconds, 0), &w.ClientConfig})
		}
		c.Webhooks = slices.DeleteFunc(c.Webhooks, func(w admissionv1.ValidatingWebhook) bool { return !o.mayCallWebhook(&w.ClientConfig) })
	case *admissionv1.MutatingWebhookConfiguration:
		for i := range c.Webhooks {
			w := &c.Webhooks[i]
			o.divert(Diverted{c.Name, w.Name, ptr.Deref(w.SideEffects, admissionv1.SideEffectClassUnknown), ptr.Deref(w.TimeoutSeconds, 0), &w.ClientConfig})
		}
		c.Webhooks = slices.DeleteFunc(c.Webhooks, func(w admissionv1.MutatingWebhook) bool { return !o.mayCallWebhook(&w.ClientConfig) })
	}
}

func (o *Options) divert(d Diverted) {
	if o.Divert != nil && !o.mayCallWebhook(d.Client) {
		o.Divert(d)
	}
}

func (o *Options) mayCallWebhook(c *admissionv1.WebhookClientConfig) bool {
	if c.URL == nil {
		return o.mayCallServices()
	}
	u, err := url.Parse(*c.URL)
	return err == nil && o.mayCall(net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443")))
}
