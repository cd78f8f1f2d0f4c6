package serve

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sqube/sqube/test/harness"
)

const (
	slowWatchers = 100
	// growth is how much the server's memory may grow while they do not read, of which GOMEMLIMIT keeps garbage small. tooMuch is
	// the size at which it is killed.
	growth  = 256 << 20
	tooMuch = 4 << 30
)

// TestMemoryOfSlowWatchers opens watches that are not read, one after another, while objects are written. The server's memory
// is bounded, it ends the watches that buffer too much, and a client that reads misses nothing.
func TestMemoryOfSlowWatchers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name          string
		open          func(*testing.T, *rest.Config) *slowClients
		datastore     func(testing.TB) string
		objects, size int
	}{
		{"connections, 800 objects of 100 KB, SQLite", connections, harness.SQLite, 800, 100 << 10},
		{"streams, 100 objects of 1 MB, Postgres", streams, harness.Postgres, 100, 1000 << 10},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, []string{"--datastore", test.datastore(t)}, env("GOMEMLIMIT=250MiB"))
			settle(t, s)
			config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
			harness.Must(t, err)
			reader := newReader(t, config)
			clients := test.open(t, config)
			before := s.ResetPeak(t)
			s.Guard(t)

			writeWhile(t, client(t, s.Kubeconfig), test.objects, test.size, func(i int) {
				for range (i+1)*slowWatchers/test.objects - i*slowWatchers/test.objects {
					clients.watch(t, "/api/v1/namespaces/default/configmaps?watch=1&allowWatchBookmarks=true")
				}
			})
			reader.sees(t, test.objects)
			peak := s.Memory(t, "VmHWM")
			if peak-before > growth {
				t.Errorf("the server grew by %d MiB, from %d MiB", (peak-before)>>20, before>>20)
			}
			// What the others hold is within the total limit. The faster the writes, the fewer must be ended.
			clients.ended(t, slowWatchers/10)
		})
	}
}

// writeWhile creates ConfigMaps and calls each for every one, from one goroutine at a time.
func writeWhile(t *testing.T, c kubernetes.Interface, objects, size int, each func(i int)) {
	t.Helper()
	next := make(chan int)
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			for i := range next {
				object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("large-%05d", i)}, Data: map[string]string{"k": strings.Repeat(string(rune('a'+i%26)), size)}}
				if _, err := c.CoreV1().ConfigMaps("default").Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range objects {
		next <- i
		each(i)
	}
	close(next)
	running.Wait()
}

// reader is an informer that keeps up, with the number of its watches.
type reader struct {
	store   cache.Store
	watches atomic.Int32
}

// newReader starts a reader of ConfigMaps, which drops their content.
func newReader(t *testing.T, config *rest.Config) *reader {
	t.Helper()
	r := &reader{}
	config = rest.CopyConfig(config)
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if request.URL.Query().Has("watch") {
				r.watches.Add(1)
			}
			return next.RoundTrip(request)
		})
	})
	c, err := kubernetes.NewForConfig(config)
	harness.Must(t, err)
	factory := informers.NewSharedInformerFactoryWithOptions(c, 0, informers.WithNamespace("default"), informers.WithTransform(func(object any) (any, error) {
		if m, ok := object.(*corev1.ConfigMap); ok {
			m.Data = nil
		}
		return object, nil
	}))
	informer := factory.Core().V1().ConfigMaps().Informer()
	r.store = informer.GetStore()
	factory.Start(t.Context().Done())
	t.Cleanup(factory.Shutdown)
	if !cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced) {
		t.Fatal("the informer has not synced")
	}
	return r
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// sees waits until the reader has all objects, through one watch.
func (r *reader) sees(t *testing.T, objects int) {
	t.Helper()
	harness.Retry(t, "the informer has seen all", func() error {
		n := 0
		for _, key := range r.store.ListKeys() {
			if strings.HasPrefix(key, "default/large-") {
				n++
			}
		}
		if n != objects {
			return fmt.Errorf("%d of %d", n, objects)
		}
		return nil
	})
	if n := r.watches.Load(); n != 1 {
		t.Errorf("the informer's watch was ended: it had %d", n)
	}
}

// slowClients open watches and do not read them.
type slowClients struct {
	// watch opens another watch.
	watch func(t *testing.T, path string)
	// ended waits until the server has ended n of them.
	ended func(t *testing.T, n int)
}

// connectAs connects as the user of config.
func connectAs(t *testing.T, config *rest.Config, protocol string) *tls.Conn {
	t.Helper()
	secure, err := rest.TLSConfigFor(config)
	harness.Must(t, err)
	secure.NextProtos = []string{protocol}
	server, err := url.Parse(config.Host)
	harness.Must(t, err)
	conn, err := tls.Dial("tcp", server.Host, secure)
	harness.Must(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// connections opens each watch on its own HTTP/1.1 connection, and reads only the header of the response.
func connections(t *testing.T, config *rest.Config) *slowClients {
	var conns []*tls.Conn
	return &slowClients{
		watch: func(t *testing.T, path string) {
			conn := connectAs(t, config, "http/1.1")
			fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: sqube\r\n\r\n", path)
			response, err := http.ReadResponse(bufio.NewReaderSize(conn, 512), nil)
			if err != nil || response.StatusCode != http.StatusOK {
				t.Fatal(response, err)
			}
			conns = append(conns, conn)
		},
		ended: func(t *testing.T, want int) {
			var n atomic.Int32
			var running sync.WaitGroup
			for _, conn := range conns {
				running.Go(func() {
					// Buffered data comes first. A connection with more than that was not closed.
					const underWay = 32 << 20
					if read, _ := io.CopyN(io.Discard, conn, underWay); read < underWay && int(n.Add(1)) == want {
						for _, other := range conns {
							other.Close() // or the server would send all that it has
						}
					}
				})
			}
			running.Wait()
			if int(n.Load()) < want {
				t.Errorf("%d connections were closed, want %d", n.Load(), want)
			}
		},
	}
}

// streams opens the watches as streams of a few HTTP/2 connections. For one half it reads the frames but gives the streams no
// more window; the other half gets a large window and is not read.
func streams(t *testing.T, config *rest.Config) *slowClients {
	const perConnection = 50
	var conns []*slowConnection
	return &slowClients{
		watch: func(t *testing.T, path string) {
			for {
				if len(conns) == 0 || conns[len(conns)-1].opened == perConnection {
					conns = append(conns, newSlowConnection(t, connectAs(t, config, "h2"), len(conns)%2 == 1))
				}
				c := conns[len(conns)-1]
				err := c.watch(path)
				if err == nil {
					return
				}
				if !c.unread {
					t.Fatal(err)
				}
				conns = append(conns, newSlowConnection(t, connectAs(t, config, "h2"), true)) // the previous one was closed
			}
		},
		ended: func(t *testing.T, want int) {
			n := 0
			for _, c := range conns {
				if c.unread {
					n += c.drain()
				}
			}
			harness.Retry(t, "the streams are ended", func() error {
				reset := 0
				for _, c := range conns {
					reset += int(c.resets.Load())
				}
				if reset == 0 || n+reset < want {
					return fmt.Errorf("%d streams were reset, and %d were on connections that were closed", reset, n)
				}
				return nil
			})
		},
	}
}

// slowConnection is an HTTP/2 connection of watches.
type slowConnection struct {
	conn    *tls.Conn
	unread  bool       // except for what precedes the response headers
	mu      sync.Mutex // held to write
	framer  *http2.Framer
	opened  int           // streams
	answers chan struct{} // closed when the connection ends
	resets  atomic.Int32
}

const anyWindow = 1<<31 - 1

func newSlowConnection(t *testing.T, conn *tls.Conn, unread bool) *slowConnection {
	t.Helper()
	c := &slowConnection{conn: conn, unread: unread, framer: http2.NewFramer(conn, conn), answers: make(chan struct{}, 1)}
	_, err := io.WriteString(conn, http2.ClientPreface)
	errs := []error{err}
	if unread {
		errs = append(errs, c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: anyWindow}), c.framer.WriteWindowUpdate(0, anyWindow-1<<16))
	} else {
		errs = append(errs, c.framer.WriteSettings())
		go func() {
			defer close(c.answers)
			for c.readFrame() == nil {
			}
		}()
	}
	harness.Must(t, errors.Join(errs...))
	return c
}

// readFrame reads a frame. The connection as a whole gets more window, so that the streams do not wait for each other.
func (c *slowConnection) readFrame() error {
	frame, err := c.framer.ReadFrame()
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		if !f.IsAck() {
			return c.framer.WriteSettingsAck()
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			return c.framer.WritePing(true, f.Data)
		}
	case *http2.DataFrame:
		if n := f.Header().Length; n > 0 && !c.unread {
			return c.framer.WriteWindowUpdate(0, n)
		}
	case *http2.HeadersFrame:
		c.answers <- struct{}{}
	case *http2.RSTStreamFrame:
		c.resets.Add(1)
	}
	return nil
}

// watch opens a stream and waits for the response headers.
func (c *slowConnection) watch(path string) error {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	var errs []error
	for _, field := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "sqube"}, {":path", path}, {"accept", "application/json"}} {
		errs = append(errs, encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}))
	}
	c.mu.Lock()
	errs = append(errs, c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*c.opened + 1), BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true}))
	c.mu.Unlock()
	for c.unread && len(c.answers) == 0 && errors.Join(errs...) == nil {
		errs = append(errs, c.readFrame())
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if _, ok := <-c.answers; !ok {
		return errors.New("the server has closed the connection")
	}
	c.opened++
	return nil
}

// drain returns how many streams ended because the server closed the connection.
func (c *slowConnection) drain() int {
	// Buffered data comes first.
	const underWay = 32 << 20
	if read, _ := io.CopyN(io.Discard, c.conn, underWay); read < underWay {
		return c.opened
	}
	return 0
}
