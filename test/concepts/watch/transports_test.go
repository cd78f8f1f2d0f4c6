package watch

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/websocket"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
)

// Watches over HTTP/1.1, HTTP/2 and WebSocket.

// http11 returns the administrator's client over HTTP/1.1.
func http11(t testing.TB, c *kit.Cluster) *kit.Client {
	t.Helper()
	config := rest.CopyConfig(c.Config)
	config.NextProtos = []string{"http/1.1"}
	return kit.NewClient(t, config)
}

// dialWebSocket opens a watch by an upgrade of the connection, like a browser.
func dialWebSocket(t testing.TB, c *kit.Cluster, config *rest.Config, path string, headers kit.Header,
	protocols ...string) (*websocket.Conn, error) {
	t.Helper()
	secure := kit.Must(rest.TLSConfigFor(config))(t)
	w := kit.Must(websocket.NewConfig("wss"+strings.TrimPrefix(c.URL, "https")+path, "https://example.com"))(t)
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
func receive(t testing.TB, ws *websocket.Conn) kit.Event {
	t.Helper()
	var e kit.Event
	harness.Must(t, websocket.JSON.Receive(ws, &e))
	return e
}

var watchTransports = []kit.Promise{
	{Statement: "over HTTP/1.1, a watch is sent in chunks, each event immediately", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps")
		response := http11(t, c).Open(t, http.MethodGet, path+"?watch=1&"+notRoot+"&resourceVersion="+c.Get(t, path).
			ResourceVersion(t), nil, nil)
		defer response.Body.Close()
		kit.Equal(t, []any{response.Proto, response.TransferEncoding}, []any{"HTTP/1.1", []string{"chunked"}})
		lines := bufio.NewReader(response.Body)
		for _, name := range []string{"a", "b"} {
			c.Post(t, path, kit.ConfigMap(name, nil)).Created(t)
			line, err := lines.ReadBytes('\n')
			var e kit.Event
			if err == nil {
				err = json.Unmarshal(line, &e)
			}
			if err != nil || e.Type+e.Name() != "ADDED"+name {
				t.Errorf("the line is %s, %v", line, err)
			}
		}
	}},
	{Statement: "over HTTP/2, many watches share a connection", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps")
		start := c.Get(t, path).ResourceVersion(t)
		var streams []*kit.Stream
		for range 50 {
			response := c.Open(t, http.MethodGet, path+"?watch=1&"+notRoot+"&resourceVersion="+start, nil, nil)
			defer response.Body.Close()
			kit.Equal(t, response.Proto, "HTTP/2.0")
			streams = append(streams, &kit.Stream{Request: path, Decoder: json.NewDecoder(response.Body),
				Close: response.Body.Close})
		}
		c.Post(t, path, kit.ConfigMap("a", nil)).Created(t)
		for _, s := range streams {
			seen(t, s, "ADDED a")
		}
	}},
	{Statement: "watches other than streaming lists are not compressed, whatever the client accepts", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps")
		start := c.Get(t, path).ResourceVersion(t)
		c.Post(t, path, kit.ConfigMap("a", map[string]string{"k": strings.Repeat("x", 300_000)})).Created(t)
		for _, version := range []string{"", "&resourceVersion=" + start} {
			a := c.WatchAs(t, 1, kit.Header{"Accept-Encoding", "gzip"}, path+"?watch=1&"+notRoot+version)
			kit.Equal(t, []any{a.Header.Get("Content-Encoding"), a.Events(t)[0].Name()}, []any{"", "a"})
		}
		list := c.Send(t, http.MethodGet, path, kit.Header{"Accept-Encoding", "gzip"}, nil)
		kit.Equal(t, list.Header.Get("Content-Encoding"), "gzip") // like the list
	}},
	{Statement: "a watch over WebSocket has a message for each event", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, kit.AnySchema)
		for path, object := range map[string]map[string]any{
			c.Path("v1", "configmaps"): kit.ConfigMap("a", nil), c.Path(groupVersion, "widgets"): kit.Widget(groupVersion, "a"),
		} {
			ws := kit.Must(dialWebSocket(t, c, c.Config, path+"?watch=1&fieldSelector=metadata.name=a", nil))(t)
			c.Post(t, path, object).Created(t)
			e := receive(t, ws)
			kit.Equal(t, []any{e.Type, e.Name(), e.Object["kind"]}, []any{"ADDED", "a", object["kind"]})
			c.Delete(t, path+"/a").OK(t)
			kit.Equal(t, receive(t, ws).Type, "DELETED")
		}
	}},
	{Statement: "over WebSocket, JSON is sent in text frames, protobuf and CBOR in binary ones", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps")
		c.Post(t, path, kit.ConfigMap("a", nil)).Created(t)
		for accept, want := range map[string]byte{"": websocket.TextFrame, kit.Protobuf: websocket.BinaryFrame,
			kit.CBOR: websocket.BinaryFrame} {
			ws := kit.Must(dialWebSocket(t, c, c.Config, path+"?watch=1&fieldSelector=metadata.name=a", kit.Header{"Accept", accept}))(t)
			frame := kit.Must(ws.NewFrameReader())(t)
			kit.Equal(t, frame.PayloadType(), want)
			data := kit.Must(io.ReadAll(frame))(t)
			contentType := map[string]string{"": runtime.ContentTypeJSON, kit.Protobuf: kit.Protobuf,
				kit.CBOR: runtime.ContentTypeCBORSequence}[accept]
			if accept == kit.Protobuf { // a frame is its own length
				data = append([]byte{0, 0, byte(len(data) >> 8), byte(len(data))}, data...)
			}
			events := kit.Answer{Request: path, Header: http.Header{"Content-Type": {contentType}}, Body: data}.Events(t)
			kit.Equal(t, []any{len(events), events[0].Type, events[0].Name()}, []any{1, "ADDED", "a"})
		}
	}},
	{Statement: "a watch over WebSocket ends with its timeout, and when the client closes it", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps")
		ws := kit.Must(dialWebSocket(t, c, c.Config, path+"?watch=1&timeoutSeconds=1&fieldSelector=metadata.name=none", nil))(t)
		var e kit.Event
		if err := websocket.JSON.Receive(ws, &e); err != io.EOF {
			t.Errorf("the watch ends with %v, %v", e, err)
		}
	}},
	{Statement: "a watch accepts a single subprotocol from a client, but not several", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps")
		c.Post(t, path, kit.ConfigMap("a", nil)).Created(t)
		for _, protocol := range []string{"base64.binary.k8s.io", "binary.k8s.io", "anything"} {
			ws := kit.Must(dialWebSocket(t, c, c.Config, path+"?watch=1&fieldSelector=metadata.name=a", nil, protocol))(t)
			kit.Equal(t, ws.Config().Protocol, []string{protocol})
			kit.Equal(t, receive(t, ws).Name(), "a") // in the same frames as without one
		}
		if _, err := dialWebSocket(t, c, c.Config, path+"?watch=1", nil, "a", "b"); err == nil {
			t.Error("two subprotocols are accepted")
		}
	}},
	{Statement: "browsers send their token as a subprotocol, in addition to another one", Proof: func(t *testing.T, c *kit.Cluster) {
		account := kit.Must(c.Kube.CoreV1().ServiceAccounts(c.Namespace).
			Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "browser"}},
				metav1.CreateOptions{}))(t)
		token := kit.Must(c.Kube.CoreV1().ServiceAccounts(c.Namespace).
			CreateToken(t.Context(), account.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{}))(t)
		rbac := "rbac.authorization.k8s.io/v1"
		c.Post(t, c.Path(rbac, "roles"), kit.Manifest(`{apiVersion: %s, kind: Role, metadata: {name: browser}, rules: [{apiGroups: [""], resources: [configmaps], verbs: [watch]}]}`, rbac)).
			Created(t)
		c.Post(t, c.Path(rbac, "rolebindings"), kit.Manifest(`{apiVersion: %s, kind: RoleBinding, metadata: {name: browser},
			roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: browser}, subjects: [{kind: ServiceAccount, name: browser, namespace: %s}]}`, rbac, c.Namespace)).
			Created(t)
		path := c.Path("v1", "configmaps")
		c.Post(t, path, kit.ConfigMap("a", nil)).Created(t)
		nobody := rest.AnonymousClientConfig(c.Config)
		bearer := "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(token.Status.Token))
		query := path + "?watch=1&fieldSelector=metadata.name=a"
		harness.Eventually(t, "the token is accepted", func() bool {
			ws, err := dialWebSocket(t, c, nobody, query, nil, bearer, "base64.binary.k8s.io")
			if err != nil {
				return false
			}
			kit.Equal(t, ws.Config().Protocol, []string{"base64.binary.k8s.io"}) // the token is not sent back
			kit.Equal(t, receive(t, ws).Name(), "a")
			return true
		})
		for what, protocols := range map[string][]string{
			"no token": {"base64.binary.k8s.io"}, "a token alone": {bearer}, "two tokens": {bearer,
				bearer, "x"}, "a wrong token": {bearer[:len(bearer)-8], "x"},
		} {
			if _, err := dialWebSocket(t, c, nobody, query, nil, protocols...); err == nil {
				t.Errorf("accepted with %s", what)
			}
		}
	}},
	{Statement: "an upgrade to WebSocket without an Origin, which browsers always send, is rejected", Proof: func(t *testing.T, c *kit.Cluster) {
		response := http11(t, c).Send(t, http.MethodGet, c.Path("v1", "configmaps")+"?watch=1", kit.Header{
			"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version", "13",
		}, nil)
		response.Want(t, http.StatusForbidden)
	}},
}
