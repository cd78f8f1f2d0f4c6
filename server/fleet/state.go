package fleet

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sqube/sqube/server"
	"github.com/sqube/sqube/server/fleet/v1alpha1"
)

const (
	// stateObjects and stateBytes limit an answer. It has at least one object.
	stateObjects, stateBytes = 500, 4 << 20
)

// stateQuery is what a request for a state asks for.
type stateQuery struct {
	since, until int64
	after        string // the key of the last object that the client has
	limit        int
	status       bool // compare the status, too
	owned        bool // also what controllers and the server itself make
}

// cursor is a continue token.
type cursor struct {
	Since int64  `json:"s"`
	Until int64  `json:"u"`
	After string `json:"a"`
}

// state answers which objects of a cluster differ from a former state.
func (f *Fleet) state(_ http.ResponseWriter, r *http.Request, name types.NamespacedName) (any, error) {
	asked, err := parseState(r.URL.Query())
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	o, err := f.get(r.Context(), name)
	if err != nil {
		return nil, err
	}
	if asked.since < 0 {
		asked.since, _ = strconv.ParseInt(o.Status.ForkedAt, 10, 64) // 0 if it was not forked
	}
	s, leave, err := f.visit(r.Context(), name)
	if err != nil {
		return nil, err
	}
	defer leave()
	caller, _ := request.UserFrom(r.Context())
	d := &differ{stateQuery: asked, log: s.Changes(), mayGet: s.Changes().MayGet(server.Guest(caller))}
	return d.state(r.Context())
}

// visit wakes a cluster up until leave is called, for a request to the host.
func (f *Fleet) visit(ctx context.Context, name types.NamespacedName) (s *server.Server, leave func(), err error) {
	c := f.find(name)
	if c == nil {
		return nil, nil, notFound(name)
	}
	if s, leave, err = c.enter(ctx, false); err != nil {
		return nil, nil, apierrors.NewServiceUnavailable("the cluster can't be woken up: " + err.Error())
	}
	return s, leave, nil
}

func notFound(name types.NamespacedName) error {
	return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource(resource).GroupResource(), name.Name)
}

// parseState reads the parameters of a request. Since is -1 if it is not given.
func parseState(values url.Values) (q stateQuery, err error) {
	q.since, q.limit = -1, stateObjects
	for name := range values {
		value := values.Get(name)
		switch name {
		case "since":
			if q.since, err = strconv.ParseInt(value, 10, 64); err != nil || q.since < 0 {
				return q, fmt.Errorf("since must be a resourceVersion, not %q", value)
			}
		case "limit":
			if q.limit, err = strconv.Atoi(value); err != nil || q.limit < 1 {
				return q, fmt.Errorf("limit must be a number of objects from 1, not %q", value)
			}
			q.limit = min(q.limit, stateObjects)
		case "status", "owned":
			flag, err := strconv.ParseBool(value)
			if err != nil {
				return q, fmt.Errorf("%s must be true or false, not %q", name, value)
			}
			if name == "status" {
				q.status = flag
			} else {
				q.owned = flag
			}
		case "continue":
		default:
			return q, fmt.Errorf("there is no parameter %q: there are since, limit, continue, status and owned", name)
		}
	}
	token := values.Get("continue")
	if token == "" {
		return q, nil
	}
	at := cursor{}
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		err = json.Unmarshal(text, &at)
	}
	if err != nil || at.Until <= 0 || at.Since < 0 {
		return q, fmt.Errorf("continue must be a token of an answer before, not %q", token)
	}
	q.since, q.until, q.after = at.Since, at.Until, at.After
	return q, nil
}

// state returns a page of what differs.
func (d *differ) state(ctx context.Context) (*v1alpha1.ClusterState, error) {
	if err := d.log.Served.Current(ctx); err != nil {
		return nil, err
	}
	if err := d.begin(ctx); err != nil {
		return nil, err
	}
	touched, err := d.log.Touched(ctx, d.since, d.until, d.after, d.limit+1, d.skips)
	if err != nil {
		return nil, err
	}
	answer := &v1alpha1.ClusterState{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ClusterState"},
		ListMeta: metav1.ListMeta{ResourceVersion: fmt.Sprint(d.until)}, Since: fmt.Sprint(d.since), Items: []v1alpha1.ObjectDifference{},
	}
	bytes := 0
	for i, t := range touched {
		if i == d.limit || bytes >= stateBytes {
			token, err := json.Marshal(cursor{d.since, d.until, touched[i-1].Key()})
			answer.Continue = base64.RawURLEncoding.EncodeToString(token)
			return answer, err
		}
		difference, err := d.compare(ctx, t)
		if err != nil {
			return nil, err
		}
		if difference != nil {
			answer.Items = append(answer.Items, *difference)
			bytes += size(difference)
		}
	}
	return answer, nil
}

// size is roughly how many bytes a difference has in an answer.
func size(d *v1alpha1.ObjectDifference) int {
	const rest = 500
	bytes := rest + len(d.Patch)
	for _, f := range d.Changed {
		bytes += len(f.Path) + len(f.From) + len(f.To)
	}
	return bytes
}
