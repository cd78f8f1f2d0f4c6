package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/server/changes"
)

// changeLog reads changes through the API.
type changeLog struct {
	*cluster
	namespace string // "" for all
	terms     []fields.Selector
	limit     int // of a page, pageChanges if it is 0
}

// pageChanges is how many changes are read at once.
const pageChanges = 500

// errEnough ends a read.
var errEnough = errors.New("enough has been read")

func equals(field, value string) fields.Selector { return fields.OneTermEqualSelector(field, value) }

const (
	asJSON  = "application/json"
	asTable = "application/json;as=Table;v=v1;g=meta.k8s.io"
)

func (l *changeLog) request(form string) *rest.Request {
	r := l.client.Get().NamespaceIfScoped(l.namespace, l.namespace != "").Resource(changes.Resource).
		SetHeader("Accept", form)
	if len(l.terms) > 0 {
		r = r.Param("fieldSelector", fields.AndSelectors(l.terms...).String())
	}
	return r
}

// pages calls show with each page in a form, and returns the revision that they are of.
func (l *changeLog) pages(ctx context.Context, form string, show func([]byte) error) (revision string, err error) {
	for token := ""; ; {
		r := l.request(form).Param("limit", strconv.Itoa(cmp.Or(l.limit, pageChanges)))
		if token != "" {
			r = r.Param("continue", token)
		}
		page, err := answer(r.Do(ctx))
		if err != nil {
			return "", terminal.OneLine(err)
		}
		var head struct {
			metav1.ListMeta `json:"metadata"`
		}
		if err := json.Unmarshal(page, &head); err != nil {
			return "", err
		}
		if err := show(page); err != nil {
			return head.ResourceVersion, err
		}
		if token = head.Continue; token == "" {
			return head.ResourceVersion, nil
		}
	}
}

// answer returns the text of an answer, or the error that it is. Raw alone would not read the error.
func answer(result rest.Result) ([]byte, error) {
	if err := result.Error(); err != nil {
		return nil, err
	}
	return result.Raw()
}

// each calls yield with all changes, until it returns an error. It returns it, but for errEnough.
func (l *changeLog) each(ctx context.Context, yield func(*changes.Change) error) error {
	_, err := l.pages(ctx, asJSON, func(text []byte) error {
		var page changes.ChangeList
		if err := json.Unmarshal(text, &page); err != nil {
			return err
		}
		for i := range page.Items {
			if err := yield(&page.Items[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

type watchEvent struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// watch calls yield with what happens after a revision, until the server ends it.
func (l *changeLog) watch(ctx context.Context, form, revision string, yield func(*watchEvent) error) error {
	stream, err := l.request(form).Param("watch", "true").Param("allowWatchBookmarks", "true").Param("resourceVersion", revision).Stream(ctx)
	if err != nil {
		return terminal.OneLine(err)
	}
	defer func() { _ = stream.Close() }()
	decoder := json.NewDecoder(stream)
	for {
		event := &watchEvent{}
		if err := decoder.Decode(event); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := yield(event); err != nil {
			return err
		}
	}
}
