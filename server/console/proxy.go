package console

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"html"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sqube/sqube/server/trialrun"
)

const (
	openPath = "/open"
	// keyTime is how long a key can be used.
	keyTime = time.Minute
	// maxKeyForm is how long the form with a key can be.
	maxKeyForm = 4 << 10
)

// Proxy serves the page on this machine, and passes its requests to an API server with the credentials of transport. Only who knows one
// of its keys may use it, and only from the page itself: credentials that are added to every request must not be lent to other pages.
type Proxy struct {
	host, session string
	lent          string // a secret path below which a trial may use it: clients in Go send no tokens without TLS
	trials        *Trials
	cookie        string // its name, which has the port: a browser has the same cookies for all ports
	proxy         http.Handler

	mu   sync.Mutex
	keys map[[sha256.Size]byte]func() // by their hash, so that the time of a look-up says nothing about them
}

// NewProxy returns a proxy that listens at host, an address with its port. runner tries changes; nil if nothing can be tried.
func NewProxy(host string, target *url.URL, transport http.RoundTripper, runner *trialrun.Runner) *Proxy {
	_, port, _ := net.SplitHostPort(host)
	lent := "/" + rand.Text()
	trials := &Trials{Runner: runner, Kubeconfig: func(*http.Request) ([]byte, error) { return kubeconfig("http://" + host + lent) }}
	return &Proxy{host: host, session: rand.Text(), lent: lent, trials: trials, cookie: "sqube-console-" + port, keys: map[[sha256.Size]byte]func(){}, proxy: &httputil.ReverseProxy{
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

// isLent reports whether a path is a trial's.
func (p *Proxy) isLent(path string) bool {
	secret := path[:min(len(p.lent), len(path))]
	return subtle.ConstantTimeCompare([]byte(secret), []byte(p.lent)) == 1
}

// kubeconfig returns a kubeconfig of a server.
func kubeconfig(server string) ([]byte, error) {
	const name = "console"
	c := clientcmdapi.NewConfig()
	c.Clusters[name] = &clientcmdapi.Cluster{Server: server}
	c.Contexts[name] = &clientcmdapi.Context{Cluster: name}
	c.CurrentContext = name
	return clientcmd.Write(*c)
}

// URL returns a URL that opens the page in one browser, within a minute. It calls done when the URL has been used, or has expired.
func (p *Proxy) URL(done func()) string {
	key := rand.Text()
	p.mu.Lock()
	p.keys[sha256.Sum256([]byte(key))] = done
	p.mu.Unlock()
	time.AfterFunc(keyTime, func() { p.take(key) })
	return "http://" + p.host + openPath + "?key=" + key
}

// has reports whether a key can be used.
func (p *Proxy) has(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.keys[sha256.Sum256([]byte(key))] != nil
}

// take reports whether a key can be used, which it can't be afterwards.
func (p *Proxy) take(key string) bool {
	hash := sha256.Sum256([]byte(key))
	p.mu.Lock()
	done := p.keys[hash]
	delete(p.keys, hash)
	p.mu.Unlock()
	if done == nil {
		return false
	}
	done()
	return true
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Host != p.host: // another name that leads here, as in DNS rebinding
		http.Error(w, "this is not the address of the console", http.StatusForbidden)
	case p.isLent(r.URL.Path):
		http.StripPrefix(p.lent, p.proxy).ServeHTTP(w, r)
	case r.URL.Path == openPath:
		p.open(w, r)
	case !p.isOwn(r):
		http.Error(w, "open the console with the URL that sqube console printed", http.StatusForbidden)
	case r.URL.Path == "/":
		http.Redirect(w, r, Path+"/", http.StatusFound)
	case ServesTrials(r.URL.Path):
		p.trials.ServeHTTP(w, r)
	case Serves(r.URL.Path):
		ServeHTTP(w, r)
	default:
		p.proxy.ServeHTTP(w, r)
	}
}

// open exchanges a key for a cookie. It takes a POST to use the key, which the page that a GET returns sends by itself: a browser or
// another program that only looks at a URL in advance does not use it up.
func (p *Proxy) open(w http.ResponseWriter, r *http.Request) {
	setHeaders(w.Header())
	w.Header().Set("Cache-Control", "no-store")
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		key := r.URL.Query().Get("key")
		if p.isOwn(r) { // such as after going back
			http.Redirect(w, r, Path+"/", http.StatusFound)
		} else if p.has(key) {
			showKey(w, key)
		} else {
			keyRefused(w)
		}
	case http.MethodPost:
		r.Body = http.MaxBytesReader(w, r.Body, maxKeyForm)
		if !p.take(r.PostFormValue("key")) {
			keyRefused(w)
			return
		}
		http.SetCookie(w, &http.Cookie{Name: p.cookie, Value: p.session, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
		http.Redirect(w, r, Path+"/", http.StatusSeeOther)
	default:
		w.Header().Set("Allow", "GET, HEAD, POST")
		http.Error(w, "only GET, HEAD and POST", http.StatusMethodNotAllowed)
	}
}

// sendKey is the script of the page with a key.
const sendKey = "document.forms[0].submit()"

func showKey(w http.ResponseWriter, key string) {
	hash := sha256.Sum256([]byte(sendKey))
	w.Header().Set("Content-Security-Policy", fmt.Sprintf("default-src 'none'; script-src 'sha256-%s'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
		base64.StdEncoding.EncodeToString(hash[:])))
	w.Header().Set("Content-Type", types[".html"])
	fmt.Fprintf(w, `<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>sqube</title></head>
<body><form method="post" action="%s"><input type="hidden" name="key" value="%s"><button>Open the console</button></form><script>%s</script></body>
</html>
`, openPath, html.EscapeString(key), sendKey)
}

func keyRefused(w http.ResponseWriter) {
	http.Error(w, "This URL of the console was used, or is older than a minute: each opens it once. Start sqube console again for another one.", http.StatusForbidden)
}

// isOwn reports whether a request is the page's own: it has the cookie, and no other page has sent it. A port is no part of a site, so
// SameSite alone lets pages of other servers on this machine send requests.
func (p *Proxy) isOwn(r *http.Request) bool {
	cookie, err := r.Cookie(p.cookie)
	if err != nil || subtle.ConstantTimeCompare([]byte(cookie.Value), []byte(p.session)) != 1 {
		return false
	}
	if origin := r.Header.Get("Origin"); origin != "" && origin != "http://"+p.host {
		return false
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return true
	}
	return false
}
