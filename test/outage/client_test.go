package outage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// cluster is a server under test and its clients.
type cluster struct {
	*sqube.Server
	kubernetes.Interface
	http *http.Client // as the administrator, and without retries
}

func serve(t *testing.T, datastore string, args ...string) *cluster {
	t.Helper()
	return started(t, sqube.Options{Datastore: datastore, Args: args})
}

func started(t *testing.T, options sqube.Options) *cluster {
	t.Helper()
	c := &cluster{Server: sqube.Start(t, options)}
	config := c.Config(t)
	config.QPS = -1 // no client-side limit
	var err error
	if c.http, err = rest.HTTPClientFor(config); err != nil {
		t.Fatal(err)
	}
	if c.Interface, err = kubernetes.NewForConfigAndClient(config, c.http); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *cluster) create(t *testing.T, name string) error {
	_, err := c.CoreV1().ConfigMaps("default").Create(t.Context(), configMap(name), metav1.CreateOptions{})
	return err
}

// creates is create with as many retries as necessary, including those of client-go. One that failed may have taken effect.
func (c *cluster) creates(t *testing.T, name string) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(harness.Patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if err = c.create(t, name); err == nil || apierrors.IsAlreadyExists(err) {
			return
		}
	}
	t.Fatalf("nothing can be written: %v", err)
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"of": "outage"}}}
}

// request is a request that needs the database.
type request struct{ method, path, body, token string }

func (c *cluster) do(t *testing.T, r request) (*http.Response, []byte, error) {
	asked, err := http.NewRequestWithContext(t.Context(), r.method, c.URL+r.path, strings.NewReader(r.body))
	if err != nil {
		return nil, nil, err
	}
	asked.Header.Set("Content-Type", "application/json")
	client := c.http
	if r.token != "" {
		asked.Header.Set("Authorization", "Bearer "+r.token)
		config := rest.AnonymousClientConfig(c.Config(t))
		if client, err = rest.HTTPClientFor(config); err != nil {
			return nil, nil, err
		}
	}
	response, err := client.Do(asked)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response, body, err
}

// refused returns an error unless the response is the Status of a server whose database does not respond.
func refused(response *http.Response, body []byte) error {
	var status metav1.Status
	if err := json.Unmarshal(body, &status); err != nil {
		return err
	}
	reasons := map[int]metav1.StatusReason{http.StatusServiceUnavailable: metav1.StatusReasonServiceUnavailable, http.StatusGatewayTimeout: metav1.StatusReasonTimeout}
	reason, known := reasons[response.StatusCode]
	switch {
	case !known || status.Kind != "Status" || int(status.Code) != response.StatusCode || status.Reason != reason:
		return fmt.Errorf("got %s, want a Status of 503 or 504", response.Status)
	case !strings.Contains(status.Message, "the datastore"):
		return errors.New("the message does not mention the datastore")
	case response.Header.Get("Retry-After") == "" || status.Details == nil || status.Details.RetryAfterSeconds == 0:
		return errors.New("no Retry-After")
	case strings.Contains(status.Message, "\n"):
		return errors.New("the message has several lines")
	}
	return nil
}

// watching is a watch of what create creates, from now on, as a single stream without a client library's retries.
type watching struct {
	response *http.Response
	events   *json.Decoder
}

func (c *cluster) watch(t *testing.T) *watching {
	t.Helper()
	list, err := c.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	harness.Must(t, err)
	asked, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		c.URL+"/api/v1/namespaces/default/configmaps?watch=true&labelSelector=of%3Doutage&resourceVersion="+list.ResourceVersion, nil)
	harness.Must(t, err)
	response, err := c.http.Do(asked)
	harness.Must(t, err)
	t.Cleanup(func() { _ = response.Body.Close() })
	if response.StatusCode != http.StatusOK {
		t.Fatalf("the watch returned %s", response.Status)
	}
	return &watching{response, json.NewDecoder(response.Body)}
}

// next returns one event: its type, and the name of its object or the code of its Status.
func (w *watching) next() (string, error) {
	var event struct {
		Type   string
		Object struct {
			Metadata metav1.ObjectMeta
			Code     int
		}
	}
	if err := w.events.Decode(&event); err != nil {
		return "", err
	}
	if event.Type == "ERROR" {
		return fmt.Sprint("ERROR ", event.Object.Code), nil
	}
	return event.Type + " " + event.Object.Metadata.Name, nil
}

// brings expects exactly these events next.
func (w *watching) brings(t *testing.T, events ...string) {
	t.Helper()
	for _, want := range events {
		if got, err := w.next(); err != nil || got != want {
			t.Fatalf("the watch returned %q, %v, want %q", got, err, want)
		}
	}
}

// through returns the DSN with the address of a proxy in place of its server's.
func through(t *testing.T, dsn, proxy string) string {
	t.Helper()
	u := harness.ParseDSN(t, dsn)
	u.Host = proxy
	return u.String()
}

// execute runs a statement as the server's superuser, independently of sqube.
func execute(t *testing.T, dsn, statement string) {
	t.Helper()
	db := harness.OpenDatabase(t, harness.Engine{Name: "postgres", Datastore: dsn})
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}
