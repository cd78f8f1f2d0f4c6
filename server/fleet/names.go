package fleet

import (
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
