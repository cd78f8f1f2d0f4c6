// Package query answers questions in SQL about the state and its history: resource queries of group history.sqube.io, for administrators.
//
// A [Query] is not stored: creating one returns it with the rows in its status. Who may create queries may read everything that is stored,
// so no role but cluster-admin includes it. What a statement may do is the engine's business: see dialect.Engine's Ask.
package query

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sqube/sqube/server/changes"
)

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
