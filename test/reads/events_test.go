package reads

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const streamOfProtobuf = "application/vnd.kubernetes.protobuf;stream=watch"

// testEvents watches a collection from its beginning, in both formats: the objects of events are, byte for byte, what a get
// returns.
func testEvents(t *testing.T, c *cluster, path string, names []string) {
	t.Helper()
	for accept, read := range map[string]func(*bufio.Reader) (string, []byte, error){"application/json": jsonEvent, streamOfProtobuf: protobufEvent} {
		seen := map[string]bool{}
		err := events(t, c, path+"?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", accept, read,
			func(kind string, object []byte) error {
				if kind != "ADDED" {
					return fmt.Errorf("an event %s: %q", kind, object)
				}
				obj, _, err := codecs.UniversalDeserializer().Decode(object, nil, nil)
				if err != nil {
					return err
				}
				m := obj.(metav1.ObjectMetaAccessor).GetObjectMeta()
				seen[m.GetName()] = true
				if !alone(len(seen), m.GetName()) {
					return nil
				}
				one := path + "/" + url.PathEscape(m.GetName())
				plain := c.get(t, one, "Accept", accept)
				if got := c.get(t, one); got.code != http.StatusOK || got.version(t) != m.GetResourceVersion() {
					return nil // a controller was faster
				}
				if !bytes.Equal(bytes.TrimSuffix(plain.body, []byte("\n")), object) {
					return fmt.Errorf("the object is\n%q, and\n%q in a get", object, plain.body)
				}
				return nil
			})
		if err != nil {
			t.Errorf("watch %s as %s: %v", path, accept, err)
		}
		for _, name := range names {
			if !seen[name] && err == nil {
				t.Errorf("watch %s as %s: no %s", path, accept, name)
			}
		}
	}
}

// events calls take with the events of a watch up to the bookmark that ends the initial ones.
func events(t *testing.T, c *cluster, path, accept string, read func(*bufio.Reader) (string, []byte, error), take func(string, []byte) error) error {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.config.Host+path, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", accept)
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	stream := bufio.NewReader(response.Body)
	for {
		kind, object, err := read(stream)
		if err != nil {
			return err
		}
		if kind == "BOOKMARK" {
			if !bytes.Contains(object, []byte("k8s.io/initial-events-end")) {
				return fmt.Errorf("a bookmark: %q", object)
			}
			return nil
		}
		if err := take(kind, object); err != nil {
			return err
		}
	}
}

func jsonEvent(stream *bufio.Reader) (string, []byte, error) {
	line, err := stream.ReadBytes('\n')
	if err != nil {
		return "", nil, err
	}
	var event struct {
		Type   string
		Object json.RawMessage
	}
	err = json.Unmarshal(line, &event)
	if want := fmt.Sprintf(`{"type":%q,"object":%s}`+"\n", event.Type, event.Object); err == nil && want != string(line) {
		err = fmt.Errorf("an event in an unexpected format: %s", line)
	}
	return event.Type, event.Object, err
}

func protobufEvent(stream *bufio.Reader) (string, []byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(stream, length[:]); err != nil {
		return "", nil, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(length[:]))
	if _, err := io.ReadFull(stream, frame); err != nil {
		return "", nil, err
	}
	var event metav1.WatchEvent
	if err := event.Unmarshal(frame); err != nil {
		return "", nil, err
	}
	if again, err := event.Marshal(); err != nil || !bytes.Equal(again, frame) {
		return "", nil, fmt.Errorf("an event in an unexpected format: %q, %w", frame, err)
	}
	return event.Type, event.Object.Raw, nil
}
