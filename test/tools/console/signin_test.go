package console

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestIdentityProvider signs in at an issuer of OpenID Connect, and again when the token has expired.
func TestIdentityProvider(t *testing.T) {
	_, err := as("").RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "ann"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "oidc:ann"}}}, metav1.CreateOptions{})
	must(t, err)
	p := newPage(t)
	p.open("#/list?r=v1/namespaces")
	p.click("button", "Sign in with 127.0.0.1:")
	p.sees("oidc:ann", "kube-system")
	if where := eval[string](p, "location.href + document.referrer"); !strings.HasPrefix(where, address+"/console/#/list?r=v1/namespaces") || strings.Contains(where, "ey") || strings.Contains(where, "code") {
		t.Errorf("the page is at %s", where)
	}
	if eval[bool](p, "document.cookie !== '' || Object.keys(sessionStorage).join() !== 'sqube-token' || localStorage.length > 0") {
		t.Error("more than the token is kept")
	}

	eval[any](p, "sessionStorage.setItem('sqube-token', 'expired')")
	p.open("#/list?r=v1/secrets&ns=kube-system")
	p.sees("The token has expired or was refused.")
	p.click("button", "Sign in with 127.0.0.1:")
	p.sees("oidc:ann", "Secrets")

	defer provider.goesWrong("")
	provider.goesWrong("denied")
	p.click("button[aria-label='Sign out']", "")
	p.click("button", "Sign in with 127.0.0.1:")
	p.sees("You are not signed in", "ann is <b>not</b> invited (access_denied)")
	provider.goesWrong("")
	p.click("a", "Try again")
	p.sees("oidc:ann", "Secrets")
}

// browserClient returns a client with cookies that follows no redirects.
func browserClient(t *testing.T) *http.Client {
	jar, err := cookiejar.New(nil)
	must(t, err)
	return &http.Client{Jar: jar, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// visit gets a URL, and returns where it leads and what it shows.
func visit(t *testing.T, c *http.Client, where string) (*http.Response, string) {
	t.Helper()
	response, err := c.Get(where)
	must(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must(t, err)
	return response, string(body)
}

// returned goes to the provider, and returns the URL to which that sends the browser back.
func returned(t *testing.T, c *http.Client) string {
	t.Helper()
	sent, body := visit(t, c, address+"/console/oidc/login")
	if sent.StatusCode != http.StatusFound {
		t.Fatalf("%d %s", sent.StatusCode, body)
	}
	cookie := sent.Header.Get("Set-Cookie")
	for _, part := range []string{"__Host-", "; Path=/;", "HttpOnly", "Secure", "SameSite=Lax", "Max-Age=600"} {
		if !strings.Contains(cookie, part) {
			t.Errorf("the cookie is %q, want %q in it", cookie, part)
		}
	}
	asked, err := sent.Location()
	must(t, err)
	if q := asked.Query(); q.Get("redirect_uri") != address+"/console/oidc/callback" || q.Get("scope") != "openid email" || q.Get("response_type") != "code" {
		t.Errorf("the provider is asked for %v", q)
	}
	back, _ := visit(t, c, asked.String())
	return back.Header.Get("Location")
}

// TestSignInErrors says in plain words what went wrong, and gives nobody's token away.
func TestSignInErrors(t *testing.T) {
	refused := func(c *http.Client, where, want string) {
		t.Helper()
		response, body := visit(t, c, where)
		if response.StatusCode != http.StatusBadRequest || !strings.Contains(body, want) || strings.Contains(body, "data-token") {
			t.Errorf("%s: %d %s, want %q", where, response.StatusCode, body, want)
		}
		if header := response.Header; header.Get("Cache-Control") != "no-store" || !strings.Contains(header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("headers %v", header)
		}
	}
	// A good one, for comparison. Its code and cookie are used up.
	c := browserClient(t)
	back := returned(t, c)
	response, body := visit(t, c, back)
	if response.StatusCode != http.StatusOK || !strings.Contains(body, "data-token=\"ey") || response.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%d %v %s", response.StatusCode, response.Header, body)
	}
	const elsewhere = "This sign-in did not begin in this browser"
	refused(c, back, elsewhere)

	// Another site sends the browser back with its own code, or with an error of its own words.
	refused(browserClient(t), returned(t, browserClient(t)), elsewhere)
	victim := browserClient(t)
	returned(t, victim)
	refused(victim, returned(t, browserClient(t)), elsewhere)
	refused(browserClient(t), address+"/console/oidc/callback?error=x&error_description=call+0800", elsewhere)

	defer provider.goesWrong("")
	for wrong, want := range map[string]string{
		"denied": "ann is &lt;b&gt;not&lt;/b&gt; invited (access_denied)",
		"down":   "The server can’t reach the issuer " + provider.URL,
		"client": "The issuer refused the console: the secret is wrong (invalid_client)",
		"nonce":  "its nonce is wrong",
		"clock":  "The clocks of the two may differ",
	} {
		provider.goesWrong(wrong)
		c := browserClient(t)
		refused(c, returned(t, c), want)
	}
	provider.goesWrong("")
	c = browserClient(t)
	stolen, err := url.Parse(returned(t, c))
	must(t, err)
	query := stolen.Query()
	query.Set("code", "guessed")
	stolen.RawQuery = query.Encode()
	refused(c, stolen.String(), "invalid_grant")
}
