package kit

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/test/harness"
)

// AggregatedServer is the test's own aggregated API server. It serves the resource widgets in version v1 of its group, and
// accepts only requests from a front proxy.
type AggregatedServer struct {
	Group string
	Port  int
	CA    []byte // PEM
	// Answers are bodies by path, with their media types if not JSON, for what is not an object. SetAnswer changes them later.
	Answers map[string]string
	// Hangs lets its watches send nothing, not even the bookmark that ends a list.
	Hangs  bool
	server *httptest.Server

	mu       sync.Mutex
	requests []*http.Request
}

// AggregatedList is the media type of aggregated discovery.
const AggregatedList = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// StartAggregatedServer starts a server for the promise's group at the given address. Clients need a certificate of the
// authority in the cluster's ConfigMap extension-apiserver-authentication.
func StartAggregatedServer(t *testing.T, c *Cluster, address string) *AggregatedServer {
	t.Helper()
	r := &AggregatedServer{Group: c.Namespace + ".example.com"}
	v1 := r.Group + "/v1"
	r.Answers = map[string]string{
		"/apis/" + v1: `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"` + v1 + `","resources":[{"name":"widgets","singularName":"widget",` +
			`"namespaced":true,"kind":"Widget","verbs":["create","get","list"],"shortNames":["wd"]}]}`,
		"/apis": `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[{"metadata":{"name":"` + r.Group + `"},` +
			`"versions":[{"version":"v1","resources":[{"resource":"widgets","singularResource":"widget","scope":"Namespaced",` +
			`"responseKind":{"group":"` + r.Group + `","version":"v1","kind":"Widget"},"verbs":["create","get","list"],"shortNames":["wd"]}]}]}]}`,
		"/openapi/v3":            `{"paths":{"apis/` + v1 + `":{"serverRelativeURL":"/openapi/v3/apis/` + v1 + `?hash=ABC"}}}`,
		"/openapi/v3/apis/" + v1: `{"openapi":"3.0.0","info":{"title":"widgets","version":"v1"},"paths":{},"components":{"schemas":{}}}`,
		"/openapi/v2": `{"swagger":"2.0","info":{"title":"widgets","version":"v1"},"paths":{"/apis/` + v1 + `/widgets":{"get":{"responses":{"200":{` +
			`"description":"OK","schema":{"$ref":"#/definitions/Widget"}}}}},"/apis/another.example.com/v1/widgets":{}},` +
			`"definitions":{"Widget":{"type":"object","description":"what ` + r.Group + ` makes"}}}`,
	}
	known := FrontProxyAuthentication(t, c)
	proxies := x509.NewCertPool()
	if !proxies.AppendCertsFromPEM([]byte(known.Text(t, "data", "requestheader-client-ca-file"))) {
		t.Fatalf("no authority of front proxies in %s", known.Body)
	}
	serving := ServingCertificate(t, "widgets."+c.Namespace+".svc")
	r.CA = serving.Certificate
	r.server = httptest.NewUnstartedServer(r)
	r.server.Listener.Close()
	r.server.Listener = Must(net.Listen("tcp", net.JoinHostPort(address, "0")))(t)
	r.server.TLS = &tls.Config{Certificates: serving.ForTLS(t), ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: proxies}
	r.server.EnableHTTP2 = true
	r.server.Config.ErrorLog = log.New(io.Discard, "", 0) // of clients that reject the certificate
	r.server.StartTLS()
	t.Cleanup(r.Stop)
	r.Port = r.server.Listener.Addr().(*net.TCPAddr).Port
	return r
}

// FrontProxyAuthentication reads the ConfigMap with which servers of aggregated APIs authenticate the front proxy. It is
// written after a server has started.
func FrontProxyAuthentication(t testing.TB, c *Cluster) (found Answer) {
	t.Helper()
	harness.Eventually(t, "extension-apiserver-authentication exists", func() bool {
		found = c.Get(t, "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication")
		return found.Code == http.StatusOK
	})
	return found
}

// SetAnswer changes the body of a path while the server runs.
func (r *AggregatedServer) SetAnswer(path, body string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Answers[path] = body
}

// Stop stops the server and its pending responses.
func (r *AggregatedServer) Stop() {
	r.server.CloseClientConnections()
	r.server.Close()
}

// ServeHTTP responds like an API server, except that paths ending in /redirect redirect, /echo upgrades to a protocol that
// echoes lines, /broken breaks the connection, and /reviews is a webhook.
func (r *AggregatedServer) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	r.mu.Lock()
	r.requests = append(r.requests, request)
	body, fixed := r.Answers[request.URL.Path]
	r.mu.Unlock()
	path := request.URL.Path
	switch {
	case fixed && (path != "/apis" || strings.Contains(request.Header.Get("Accept"), "as=APIGroupDiscoveryList")):
		w.Header().Set("Content-Type", "application/json")
		if path == "/apis" {
			w.Header().Set("Content-Type", AggregatedList)
		}
		io.WriteString(w, body)
	case strings.HasSuffix(path, "/reviews"):
		refuse(w, request)
	case strings.HasSuffix(path, "/redirect"):
		http.Redirect(w, request, "https://192.0.2.1/", http.StatusFound)
	case strings.HasSuffix(path, "/echo"):
		echo(w)
	case strings.HasSuffix(path, "/broken"):
		io.WriteString(w, "{")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	case r.Hangs && request.URL.Query().Get("watch") != "":
		w.(http.Flusher).Flush()
		<-request.Context().Done()
	case strings.HasPrefix(path, "/apis/"+r.Group+"/v1/"):
		r.serveObjects(w, request)
	default:
		http.NotFound(w, request)
	}
}

// refuse responds like an admission webhook that denies everything.
func refuse(w http.ResponseWriter, request *http.Request) {
	var review map[string]any
	if err := json.NewDecoder(request.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	uid, _, _ := unstructured.NestedString(review, "request", "uid")
	review["response"] = map[string]any{"uid": uid, "allowed": false, "status": map[string]any{"code": http.StatusForbidden, "message": "no widget"}}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(review)
}

func echo(w http.ResponseWriter) {
	connection, stream, err := w.(http.Hijacker).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer connection.Close()
	io.WriteString(connection, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	for {
		line, err := stream.ReadString('\n')
		if err != nil {
			return
		}
		io.WriteString(connection, line)
	}
}

// serveObjects responds to requests for widgets, of which none is kept. (No controller deletes or watches what has no such verb.)
func (r *AggregatedServer) serveObjects(w http.ResponseWriter, request *http.Request) {
	_, name, _ := strings.Cut(request.URL.Path, "/widgets/")
	code := http.StatusOK
	object := map[string]any{"apiVersion": r.Group + "/v1", "kind": "WidgetList", "metadata": map[string]any{"resourceVersion": "1"}, "items": []any{}}
	switch {
	case request.Method == http.MethodPost:
		if err := json.NewDecoder(request.Body).Decode(&object); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		code = http.StatusCreated
		SetField(object, r.Group+"-made", "metadata", "uid")
	case name != "":
		code = http.StatusNotFound
		object = Manifest("{kind: Status, apiVersion: v1, status: Failure, reason: NotFound, code: 404, message: the widget server has no %s}", name)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(object)
}

// LastRequest returns the last request for a path.
func (r *AggregatedServer) LastRequest(t testing.TB, path string) *http.Request {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := len(r.requests) - 1; i >= 0; i-- {
		if r.requests[i].URL.Path == path {
			return r.requests[i]
		}
	}
	t.Fatalf("no request for %s has reached the remote server", path)
	return nil
}

// Requests lists the requests so far, by method and path.
func (r *AggregatedServer) Requests() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for _, request := range r.requests {
		all = append(all, request.Method+" "+request.URL.Path)
	}
	return all
}

// Path returns the path of widgets in the promise's namespace.
func (r *AggregatedServer) Path(c *Cluster, rest ...string) string {
	return c.Path(r.Group+"/v1", append([]string{"widgets"}, rest...)...)
}

// MakeServiceTo creates the Service widgets in the promise's namespace, which points to this machine.
//
// It is an ExternalName, which works without a network: the addresses of endpoints may not be loopback.
func MakeServiceTo(t testing.TB, c *Cluster) {
	t.Helper()
	c.Post(t, c.Path("v1", "services"), Manifest("{metadata: {name: widgets}, spec: {type: ExternalName, externalName: localhost}}")).Created(t)
}

// APIServices is the path of all APIServices.
const APIServices = "/apis/apiregistration.k8s.io/v1/apiservices"

// NewAPIService returns an APIService for version v1 of a group, with the Service widgets in the promise's namespace.
func NewAPIService(c *Cluster, group string, port int, ca []byte) map[string]any {
	return Manifest(`{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1.%[1]s}, spec: {group: %[1]s, version: v1,
		groupPriorityMinimum: 2000, versionPriority: 10, caBundle: %[2]s, service: {namespace: %[3]s, name: widgets, port: %[4]d}}}`,
		group, base64.StdEncoding.EncodeToString(ca), c.Namespace, port)
}

// Register creates the APIService of a remote server and waits until it is available.
func (r *AggregatedServer) Register(t *testing.T, c *Cluster) {
	t.Helper()
	MakeServiceTo(t, c)
	RegisterAPIService(t, c, NewAPIService(c, r.Group, r.Port, r.CA))
	WaitAvailable(t, c, "v1."+r.Group, "True", "Passed")
}

// RegisterAPIService creates an APIService that is deleted when the test ends.
func RegisterAPIService(t *testing.T, c *Cluster, object map[string]any) {
	t.Helper()
	made := c.Post(t, APIServices, object).Created(t)
	c.DeleteAtEnd(t, APIServices+"/"+made.Text(t, "metadata", "name"))
}

// WaitAvailable waits until the condition Available of an APIService has this status and reason, and returns its message. Once
// an APIService is available, it also waits until its group version is served: requests get 503 until the proxies have heard of it.
func WaitAvailable(t *testing.T, c *Cluster, name, status, reason string) (message string) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("APIService %s is available: %s, %s", name, status, reason), func() bool {
		read := c.Get(t, APIServices+"/"+name)
		if read.Code != http.StatusOK {
			return false
		}
		conditions, _ := read.Value(t, "status", "conditions").([]any)
		for _, condition := range conditions {
			got := condition.(map[string]any)
			message, _ = got["message"].(string)
			if got["type"] == "Available" && got["status"] == status && got["reason"] == reason {
				return true
			}
		}
		return false
	})
	if status == "True" {
		version, group, _ := strings.Cut(name, ".")
		path := "/apis/" + group + "/" + version
		harness.Eventually(t, path+" is served", func() bool { return c.Get(t, path).Code == http.StatusOK })
	}
	return message
}

// DialUpgrade upgrades a connection to the protocol echo, and returns it.
func DialUpgrade(t *testing.T, c *Cluster, path string) (net.Conn, *bufio.Reader, *http.Response) {
	t.Helper()
	config := Must(rest.TLSConfigFor(c.Config))(t)
	config.NextProtos = []string{"http/1.1"}
	connection := Must(tls.Dial("tcp", strings.TrimPrefix(c.URL, "https://"), config))(t)
	t.Cleanup(func() { connection.Close() })
	harness.Must(t, connection.SetDeadline(time.Now().Add(RequestTimeout)))
	request := Must(http.NewRequestWithContext(t.Context(), http.MethodGet, c.URL+path, nil))(t)
	request.Header.Set("Connection", "Upgrade")
	request.Header.Set("Upgrade", "echo")
	harness.Must(t, request.Write(connection))
	reader := bufio.NewReader(connection)
	response := Must(http.ReadResponse(reader, request))(t)
	return connection, reader, response
}
