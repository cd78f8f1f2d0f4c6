package console

import (
	"crypto/rand"
	"crypto/subtle"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
)

const openPath = "/open"

// Proxy serves the page on this machine, and passes its requests to an API server with the credentials of transport. Only who knows its
// URL may use it, and only from the page itself: credentials that are added to every request must not be lent to other pages.
type Proxy struct {
	host, key string
	cookie    string // its name, which has the port: a browser has the same cookies for all ports
	proxy     http.Handler
}

// NewProxy returns a proxy that listens at host, an address with its port.
func NewProxy(host string, target *url.URL, transport http.RoundTripper) *Proxy {
	_, port, _ := net.SplitHostPort(host)
	return &Proxy{host: host, key: rand.Text(), cookie: "sqube-console-" + port, proxy: &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1, // watches
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			// The server needs neither, and the cookie is a secret of this proxy.
			r.Out.Header.Del("Cookie")
			r.Out.Header.Del("Origin")
		},
	}}
}

// URL is where the page is opened. It has the key that becomes the cookie.
func (p *Proxy) URL() string {
	return "http://" + p.host + openPath + "?key=" + p.key
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Host != p.host: // another name that leads here, as in DNS rebinding
		http.Error(w, "this is not the address of the console", http.StatusForbidden)
	case r.URL.Path == openPath:
		p.open(w, r)
	case !p.isOwn(r):
		http.Error(w, "open the console with the URL that sqube console printed", http.StatusForbidden)
	case r.URL.Path == "/":
		http.Redirect(w, r, Path+"/", http.StatusFound)
	case Serves(r.URL.Path):
		ServeHTTP(w, r)
	default:
		p.proxy.ServeHTTP(w, r)
	}
}

// open exchanges the key for a cookie, so that it does not stay in the browser's address.
func (p *Proxy) open(w http.ResponseWriter, r *http.Request) {
	if !p.matches(r.URL.Query().Get("key")) {
		http.Error(w, "the key is not the one that sqube console printed", http.StatusForbidden)
		return
	}
	http.SetCookie(w, &http.Cookie{Name: p.cookie, Value: p.key, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	w.Header().Set("Referrer-Policy", "no-referrer")
	http.Redirect(w, r, Path+"/", http.StatusFound)
}

func (p *Proxy) matches(key string) bool {
	return subtle.ConstantTimeCompare([]byte(key), []byte(p.key)) == 1
}

// isOwn reports whether a request is the page's own: it has the cookie, and no other page has sent it. A port is no part of a site, so
// SameSite alone lets pages of other servers on this machine send requests.
func (p *Proxy) isOwn(r *http.Request) bool {
	cookie, err := r.Cookie(p.cookie)
	if err != nil || !p.matches(cookie.Value) {
		return false
	}
	if origin := r.Header.Get("Origin"); origin != "" && origin != "http://"+p.host {
		return false
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return true
	}
	// The redirect from the key comes from wherever the URL was clicked. It only shows the page.
	return r.Method == http.MethodGet && r.URL.Path == Path+"/" && r.Header.Get("Sec-Fetch-Mode") == "navigate"
}
