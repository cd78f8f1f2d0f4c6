package fleet

import (
	"encoding/base64"
	"encoding/json"
	"net"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// names finds clusters by host names: NAME.NAMESPACE.DOMAIN.
type names struct{ suffix string }

// newNames returns the names under a domain, which is empty if clusters have none.
func newNames(domain string) names {
	if domain == "" {
		return names{}
	}
	return names{"." + strings.ToLower(strings.Trim(domain, "."))}
}

// Named implements server.Fleet.
func (f *Fleet) Named(host string) bool {
	_, ok := f.names.parse(host)
	return ok
}

// of returns the cluster whose host name a request has. A name under the domain that can't be a cluster's gives a cluster that does not exist.
func (n names) of(r *http.Request) (name types.NamespacedName, ok bool) {
	if n.suffix == "" {
		return name, false
	}
	host := r.Host
	if bare, _, err := net.SplitHostPort(host); err == nil {
		host = bare
	}
	return n.parse(host)
}

// byToken returns the cluster whose service account has issued the token of a request. A pod reaches its cluster at an address without a path,
// that of the Service kubernetes. Whether the token is valid, the guard finds out.
func (f *Fleet) byToken(r *http.Request) (name types.NamespacedName, ok bool) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ey") // the beginning of a JWT
	if !ok {
		return name, false
	}
	host := f.hosts()
	parts := strings.Split(token, ".")
	if host == nil || len(parts) != 3 {
		return name, false
	}
	content, err := base64.RawURLEncoding.DecodeString(parts[1])
	claims := struct {
		Issuer string `json:"iss"`
	}{}
	if err != nil || json.Unmarshal(content, &claims) != nil {
		return name, false
	}
	rest, ok := strings.CutPrefix(claims.Issuer, host.ExternalURL()+PathPrefix)
	namespace, cluster, _ := strings.Cut(rest, "/")
	return types.NamespacedName{Namespace: namespace, Name: cluster}, ok && valid(namespace, cluster)
}

// parse is of for a host name.
func (n names) parse(host string) (name types.NamespacedName, ok bool) {
	if n.suffix == "" {
		return name, false
	}
	rest, ok := strings.CutSuffix(strings.ToLower(strings.TrimSuffix(host, ".")), n.suffix)
	if !ok {
		return name, false
	}
	if i := strings.LastIndexByte(rest, '.'); i > 0 && valid(rest[i+1:], rest[:i]) {
		name = types.NamespacedName{Namespace: rest[i+1:], Name: rest[:i]}
	}
	return name, true
}
