package workload

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/sqube/sqube/test/robustness/history"
)

// list reads a list as described by l, in pages of limit objects unless that is 0, and records it if it was read to its end.
func (c *client) list(in collection, l *history.List, limit int) error {
	l.Client, l.Resource, l.Call = c.id, in.resource, c.recorder.Now()
	query := url.Values{}
	if l.Group != "" {
		query.Set("labelSelector", groupLabel+"="+l.Group)
	}
	switch {
	case l.Cached:
		query.Set("resourceVersion", "0")
	case l.Asked != 0:
		query.Set("resourceVersion", strconv.FormatUint(l.Asked, 10))
		query.Set("resourceVersionMatch", "NotOlderThan")
		if l.Exact {
			query.Set("resourceVersionMatch", "Exact")
		}
	}
	if limit > 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	for {
		server := c.anywhere()
		var got struct {
			Metadata struct{ ResourceVersion, Continue string }
			Items    []object
		}
		if err := c.send(server, http.MethodGet, in.path+"?"+query.Encode(), "", nil, &got); err != nil {
			return err
		}
		page, err := recordedPage(server, got.Metadata.ResourceVersion, got.Items)
		if err != nil {
			c.refusals(fmt.Errorf("list of %s by client %d: %w", in.resource, c.id, err))
			return err
		}
		l.Pages = append(l.Pages, page)
		if got.Metadata.Continue == "" {
			break
		}
		query.Set("continue", got.Metadata.Continue)
		query.Del("resourceVersion")
		query.Del("resourceVersionMatch")
	}
	l.Return = c.recorder.Now()
	c.recorder.List(l)
	return nil
}

func recordedPage(server int, version string, items []object) (history.Page, error) {
	page := history.Page{Server: server}
	var err error
	if page.Version, err = parseVersion(version); err != nil {
		return page, err
	}
	for i := range items {
		o, err := items[i].recorded()
		if err != nil {
			return page, err
		}
		page.Objects = append(page.Objects, o)
	}
	return page, nil
}
