// Package query answers questions in SQL about the state and its history: resource queries of group history.sqube.io, for administrators.
//
// A [Query] is not stored: creating one returns it with the rows in its status. A user who may create queries may read everything
// that is stored, so no role but cluster-admin includes that. What a statement may do is up to the engine: see Ask of dialect.Engine.
package query

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage"
)

// Resource is the name of the resource.
const Resource = "queries"

// The limits of a query.
const (
	defaultTimeout, maxTimeout = 10, 30 // seconds
	defaultRows, maxRows       = 1000, 10_000
	maxBytes                   = 4 << 20 // of the rows, as JSON
	maxSQL                     = 64 << 10
)

func init() { changes.Register(&Query{}) }

// NewREST returns the resource queries, which can only be created, for a store.
func NewREST(store *sqlstore.Store) rest.Storage {
	return &changes.Questions[Query, *Query]{
		Singular: "query",
		// Each can keep a processor busy, and old versions from being removed.
		Admit: changes.Slots(2, "other queries are running"),
		Answer: func(ctx context.Context, q *Query, _ *metav1.CreateOptions) error {
			if wrong := q.Spec.check(); len(wrong) > 0 {
				return invalid(q, wrong)
			}
			return q.answer(ctx, store)
		},
	}
}

// Definition describes the resource.
func Definition() *apiextensionsv1.CustomResourceDefinition {
	return changes.Define(Query{}, Resource, "query", apiextensionsv1.ClusterScoped, "Query is a question in SQL about what is stored, and the answer. It can only be created, which takes the rights of a cluster-admin; the answer is in the status.")
}

func (s *Spec) check() (wrong field.ErrorList) {
	at := field.NewPath("spec")
	switch {
	case strings.TrimSpace(s.SQL) == "":
		wrong = append(wrong, field.Required(at.Child("sql"), "a statement"))
	case len(s.SQL) > maxSQL:
		wrong = append(wrong, field.TooLong(at.Child("sql"), "", maxSQL))
	}
	for name, given := range map[string][2]int64{"timeoutSeconds": {s.TimeoutSeconds, maxTimeout}, "maxRows": {s.MaxRows, maxRows}} {
		if given[0] < 0 || given[0] > given[1] {
			wrong = append(wrong, field.Invalid(at.Child(name), given[0], fmt.Sprintf("must be between 1 and %d", given[1])))
		}
	}
	return wrong
}

func invalid(q *Query, wrong field.ErrorList) error {
	return apierrors.NewInvalid(changes.GroupVersion.WithKind("Query").GroupKind(), q.Name, wrong)
}

// errEnough ends a query whose answer is complete.
var errEnough = errors.New("enough")

func (q *Query) answer(ctx context.Context, store *sqlstore.Store) error {
	if q.Spec.TimeoutSeconds == 0 {
		q.Spec.TimeoutSeconds = defaultTimeout
	}
	if q.Spec.MaxRows == 0 {
		q.Spec.MaxRows = defaultRows
	}
	limited, cancel := context.WithTimeout(ctx, time.Duration(q.Spec.TimeoutSeconds)*time.Second)
	defer cancel()
	q.Status = Status{Columns: []string{}, Rows: [][]any{}}
	began, bytes := time.Now(), 0
	err := store.Ask(limited, q.Spec.SQL, func(columns []string) { q.Status.Columns = append(q.Status.Columns, columns...) }, func(row []any) error {
		if int64(len(q.Status.Rows)) == q.Spec.MaxRows {
			q.Status.Cut = fmt.Sprintf("there are more than %d rows", q.Spec.MaxRows)
			return errEnough
		}
		for i, value := range row {
			if text, ok := value.(string); ok {
				row[i] = strings.ToValidUTF8(text, "\uFFFD")
			}
		}
		text, err := json.Marshal(row)
		if bytes += len(text); bytes > maxBytes {
			q.Status.Cut = fmt.Sprintf("the rows have more than %d MiB", maxBytes>>20)
			return errEnough
		}
		q.Status.Rows = append(q.Status.Rows, row)
		return err
	})
	q.Status.Milliseconds = time.Since(began).Milliseconds()
	if errors.Is(err, sqlstore.ErrLongRow) && len(q.Status.Rows) > 0 {
		q.Status.Cut = "after these rows, " + sqlstore.ErrLongRow.Error()
		return nil
	}
	if wrong, ok := errors.AsType[*sqlstore.StatementError](err); ok {
		return invalid(q, field.ErrorList{field.Invalid(field.NewPath("spec", "sql"), field.OmitValueType{}, wrong.Error())})
	}
	switch {
	case errors.Is(err, errEnough):
		return nil
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return apierrors.NewTimeoutError(fmt.Sprintf("the query took longer than %d seconds", q.Spec.TimeoutSeconds), 0)
	}
	return apistorage.ClientError(err)
}

// Query is a question and its answer.
type Query struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   Spec   `json:"spec" doc:"The question."`
	Status Status `json:"status,omitempty" doc:"The answer."`
}

// Spec is the question.
type Spec struct {
	SQL            string `json:"sql" doc:"One statement that reads, in the SQL of the database: of the views objects and history, say."`
	TimeoutSeconds int64  `json:"timeoutSeconds,omitempty" doc:"How long it may take, at most 30. Default 10."`
	MaxRows        int64  `json:"maxRows,omitempty" doc:"How many rows are returned, at most 10000. Default 1000."`
}

// Status is the answer.
type Status struct {
	Columns      []string `json:"columns" doc:"The names of the columns."`
	Rows         [][]any  `json:"rows" doc:"The rows, each with a value for each column: a number, a boolean, a string or null. Bytes are a string in base64."`
	Cut          string   `json:"cut,omitempty" doc:"Why there are not all rows; absent if there are."`
	Milliseconds int64    `json:"milliseconds" doc:"How long it took."`
}

// DeepCopyObject implements runtime.Object.
func (q *Query) DeepCopyObject() runtime.Object { return changes.Copy(q) }
