package concepts

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"golang.org/x/net/websocket"
)

// Watches over HTTP/1.1, HTTP/2 and WebSocket.

// http11 is the administrator over HTTP/1.1.
func (c *cluster) http11(t testing.TB) *client {
	t.Helper()
	config := rest.CopyConfig(c.config)
	config.NextProtos = []string{"http/1.1"}
	return newClient(t, config)
}

// dialWebSocket opens a watch by an upgrade of the connection, as a browser does.
func (c *cluster) dialWebSocket(t testing.TB, config *rest.Config, path string, headers header,
	protocols ...string) (*websocket.Conn, error) {
	t.Helper()
	secure, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	w, err := websocket.NewConfig("wss"+strings.TrimPrefix(c.url, "https")+path, "https://example.com")
	if err != nil {
		t.Fatal(err)
	}
	w.TlsConfig, w.Protocol = secure, protocols
	if config.BearerToken != "" {
		w.Header.Set("Authorization", "Bearer "+config.BearerToken)
	}
	for i := 0; i < len(headers); i += 2 {
		w.Header.Set(headers[i], headers[i+1])
	}
	ws, err := websocket.DialConfig(w)
	if err == nil {
		t.Cleanup(func() { ws.Close() })
	}
	return ws, err
}

// receive reads one message of a watch in JSON.
func receive(t testing.TB, ws *websocket.Conn) event {
	t.Helper()
	var e event
	if err := websocket.JSON.Receive(ws, &e); err != nil {
		t.Fatal(err)
	}
	return e
}

var watchTransports = []promise{
	{"over HTTP/1.1 a watch is sent in chunks, each event when it happens", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps")
		response := c.http11(t).open(t, http.MethodGet, path+"?watch=1&"+notRoot+"&resourceVersion="+c.get(t, path).
			version(t), nil, nil)
		defer response.Body.Close()
		equal(t, []any{response.Proto, response.TransferEncoding}, []any{"HTTP/1.1", []string{"chunked"}})
		lines := bufio.NewReader(response.Body)
		for _, name := range []string{"a", "b"} {
			c.post(t, path, configMap(name, nil)).want(t, http.StatusCreated)
			line, err := lines.ReadBytes('\n')
			var e event
			if err == nil {
				err = json.Unmarshal(line, &e)
			}
			if err != nil || e.Type+e.name() != "ADDED"+name {
				t.Errorf("the line is %s, %v", line, err)
			}
		}
	}},
	{"over HTTP/2 many watches share a connection", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps")
		start := c.get(t, path).version(t)
		var streams []*stream
		for range 50 {
			response := c.open(t, http.MethodGet, path+"?watch=1&"+notRoot+"&resourceVersion="+start, nil, nil)
			defer response.Body.Close()
			equal(t, response.Proto, "HTTP/2.0")
			streams = append(streams, &stream{request: path, decoder: json.NewDecoder(response.Body),
				close: response.Body.Close})
		}
		c.post(t, path, configMap("a", nil)).want(t, http.StatusCreated)
		for _, s := range streams {
			s.seen(t, "ADDED a")
		}
	}},
	{"watches are not compressed, whatever the client accepts", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps")
		start := c.get(t, path).version(t)
		c.post(t, path, configMap("a", map[string]string{"k": strings.Repeat("x", 300_000)})).want(t, http.StatusCreated)
		for _, version := range []string{"", "&resourceVersion=" + start} {
			a := c.watchAs(t, 1, header{"Accept-Encoding", "gzip"}, path+"?watch=1&"+notRoot+version)
			equal(t, []any{a.Header.Get("Content-Encoding"), a.events(t)[0].name()}, []any{"", "a"})
		}
		list := c.send(t, http.MethodGet, path, header{"Accept-Encoding", "gzip"}, nil)
		equal(t, list.Header.Get("Content-Encoding"), "gzip") // as the list is
	}},
	{"a watch over WebSocket has a message for each event", func(t *testing.T, c *cluster) {
		groupVersion := c.widgets(t, anySchema)
		for path, object := range map[string]map[string]any{
			c.path("v1", "configmaps"): configMap("a", nil), c.path(groupVersion, "widgets"): widget(groupVersion, "a"),
		} {
			ws, err := c.dialWebSocket(t, c.config, path+"?watch=1&fieldSelector=metadata.name=a", nil)
			if err != nil {
				t.Fatal(err)
			}
			c.post(t, path, object).want(t, http.StatusCreated)
			e := receive(t, ws)
			equal(t, []any{e.Type, e.name(), e.Object["kind"]}, []any{"ADDED", "a", object["kind"]})
			c.delete(t, path+"/a").want(t, http.StatusOK)
			equal(t, receive(t, ws).Type, "DELETED")
		}
	}},
	{"over WebSocket JSON comes in text frames, protobuf and CBOR in binary ones", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps")
		c.post(t, path, configMap("a", nil)).want(t, http.StatusCreated)
		for accept, want := range map[string]byte{"": websocket.TextFrame, protobufType: websocket.BinaryFrame,
			cborType: websocket.BinaryFrame} {
			ws, err := c.dialWebSocket(t, c.config, path+"?watch=1&fieldSelector=metadata.name=a", header{"Accept", accept})
			if err != nil {
				t.Fatal(err)
			}
			frame, err := ws.NewFrameReader()
			if err != nil {
				t.Fatal(err)
			}
			equal(t, frame.PayloadType(), want)
			data, err := io.ReadAll(frame)
			if err != nil {
				t.Fatal(err)
			}
			contentType := map[string]string{"": runtime.ContentTypeJSON, protobufType: protobufType,
				cborType: runtime.ContentTypeCBORSequence}[accept]
			if accept == protobufType { // a frame is its own length
				data = append([]byte{0, 0, byte(len(data) >> 8), byte(len(data))}, data...)
			}
			events := answer{request: path, Header: http.Header{"Content-Type": {contentType}}, Body: data}.events(t)
			equal(t, []any{len(events), events[0].Type, events[0].name()}, []any{1, "ADDED", "a"})
		}
	}},
	{"a watch over WebSocket ends with its timeout, and when the client closes it", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps")
		ws, err := c.dialWebSocket(t, c.config, path+"?watch=1&timeoutSeconds=1&fieldSelector=metadata.name=none", nil)
		if err != nil {
			t.Fatal(err)
		}
		var e event
		if err := websocket.JSON.Receive(ws, &e); err != io.EOF {
			t.Errorf("the watch ends with %v, %v", e, err)
		}
	}},
	{"the one subprotocol that a client of a watch offers is accepted, several are not", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps")
		c.post(t, path, configMap("a", nil)).want(t, http.StatusCreated)
		for _, protocol := range []string{"base64.binary.k8s.io", "binary.k8s.io", "anything"} {
			ws, err := c.dialWebSocket(t, c.config, path+"?watch=1&fieldSelector=metadata.name=a", nil, protocol)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, ws.Config().Protocol, []string{protocol})
			equal(t, receive(t, ws).name(), "a") // in the same frames as without
		}
		if _, err := c.dialWebSocket(t, c.config, path+"?watch=1", nil, "a", "b"); err == nil {
			t.Error("two subprotocols are accepted")
		}
	}},
	{"browsers give their token as a subprotocol beside another one", func(t *testing.T, c *cluster) {
		account, err := c.kube.CoreV1().ServiceAccounts(c.namespace).
			Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "browser"}},
				metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		token, err := c.kube.CoreV1().ServiceAccounts(c.namespace).
			CreateToken(t.Context(), account.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		rbac := "rbac.authorization.k8s.io/v1"
		c.post(t, c.path(rbac, "roles"), manifest(`{apiVersion: %s, kind: Role, metadata: {name: browser}, rules: [{apiGroups: [""], resources: [configmaps], verbs: [watch]}]}`, rbac)).
			want(t, http.StatusCreated)
		c.post(t, c.path(rbac, "rolebindings"), manifest(`{apiVersion: %s, kind: RoleBinding, metadata: {name: browser},
			roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: browser}, subjects: [{kind: ServiceAccount, name: browser, namespace: %s}]}`, rbac, c.namespace)).
			want(t, http.StatusCreated)
		path := c.path("v1", "configmaps")
		c.post(t, path, configMap("a", nil)).want(t, http.StatusCreated)
		nobody := rest.AnonymousClientConfig(c.config)
		bearer := "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(token.Status.Token))
		query := path + "?watch=1&fieldSelector=metadata.name=a"
		eventually(t, "the token lets in", func() bool {
			ws, err := c.dialWebSocket(t, nobody, query, nil, bearer, "base64.binary.k8s.io")
			if err != nil {
				return false
			}
			equal(t, ws.Config().Protocol, []string{"base64.binary.k8s.io"}) // the token is not sent back
			equal(t, receive(t, ws).name(), "a")
			return true
		})
		for what, protocols := range map[string][]string{
			"no token": {"base64.binary.k8s.io"}, "a token alone": {bearer}, "two tokens": {bearer,
				bearer, "x"}, "a wrong token": {bearer[:len(bearer)-8], "x"},
		} {
			if _, err := c.dialWebSocket(t, nobody, query, nil, protocols...); err == nil {
				t.Errorf("let in with %s", what)
			}
		}
	}},
	{"an upgrade to WebSocket without an Origin, which browsers always send, is refused", func(t *testing.T, c *cluster) {
		response := c.http11(t).send(t, http.MethodGet, c.path("v1", "configmaps")+"?watch=1", header{
			"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version", "13",
		}, nil)
		response.want(t, http.StatusForbidden)
	}},
}
