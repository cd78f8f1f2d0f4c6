package transactions

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/util/jsonpath"

	"github.com/sqube/sqube/sqlstore"
)

// require checks the conditions of a transaction on the state at its begin, and has the commit fail if that has changed.
func (r *REST) require(ctx context.Context, transport http.RoundTripper, all []Requirement, namespace string) error {
	ctx = sqlstore.WithRequired(ctx)
	paths := &paths{Served: r.Served, namespace: namespace}
	for i := range all {
		q := &all[i]
		at := field.NewPath("spec", "require").Index(i)
		path, invalid := paths.path(&q.Target, at)
		if invalid == nil && q.Name == "" {
			invalid = field.Required(at.Child("name"), "")
		}
		if invalid != nil {
			return apierrors.NewInvalid(kind, "", field.ErrorList{invalid})
		}
		c := &call{verb: "get", target: q.Target, method: http.MethodGet, path: path + "/" + url.PathEscape(q.Name)}
		body, _, err := c.send(ctx, transport)
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		if problem := q.unmet(body, err == nil); problem != "" {
			failure := apierrors.NewConflict(resource, "", fmt.Errorf("nothing was written: require[%d], %s %s: %s", i, q.Kind, q.Name, problem))
			failure.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: "TransactionRequirement", Field: at.String(), Message: problem}}
			return failure
		}
	}
	return nil
}

// unmet returns how an object does not meet the requirement, "" if it does.
func (q *Requirement) unmet(body []byte, exists bool) string {
	var object named
	switch {
	case q.Absent && exists:
		return "it exists"
	case q.Absent:
		return ""
	case !exists:
		return "it does not exist"
	}
	var whole any
	if json.Unmarshal(body, &object) != nil || json.Unmarshal(body, &whole) != nil {
		return "it can't be read"
	}
	if q.UID != "" && q.UID != object.Metadata.UID {
		return fmt.Sprintf("its uid is %s, not %s", object.Metadata.UID, q.UID)
	}
	if q.ResourceVersion != "" && q.ResourceVersion != object.Metadata.ResourceVersion {
		return fmt.Sprintf("its resourceVersion is %s, not %s", object.Metadata.ResourceVersion, q.ResourceVersion)
	}
	if q.Field == "" {
		return ""
	}
	var want any
	if q.Value != nil && json.Unmarshal(q.Value.Raw, &want) != nil {
		return "the value that it should have is no JSON"
	}
	found, err := fieldOf(whole, q.Field)
	switch {
	case err != nil:
		return err.Error()
	case !reflect.DeepEqual(found, want):
		return fmt.Sprintf("%s is not as required", q.Field)
	}
	return ""
}

// fieldOf returns the value of the field at a path, nil if there is none.
func fieldOf(object any, path string) (any, error) {
	j := jsonpath.New("field").AllowMissingKeys(true)
	if !strings.HasPrefix(path, "{") {
		path = "{" + path + "}"
	}
	if err := j.Parse(path); err != nil {
		return nil, err
	}
	results, err := j.FindResults(object)
	if err != nil || len(results) == 0 || len(results[0]) == 0 {
		return nil, err
	}
	return results[0][0].Interface(), nil
}
