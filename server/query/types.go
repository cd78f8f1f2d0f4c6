// Package query answers questions in SQL about the state and its history: resource queries of group history.sqube.io, for administrators.
//
// A [Query] is not stored: creating one returns it with the rows in its status. Who may create queries may read everything that is stored,
// so no role but cluster-admin includes it. What a statement may do is the engine's business: see dialect.Engine's Ask.
package query

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Query is a question and its answer.
type Query struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   Spec   `json:"spec"`
	Status Status `json:"status,omitempty"`
}

// Spec is the question.
type Spec struct {
	// sql is one statement that reads.
	SQL string `json:"sql"`
	// timeoutSeconds is how long it may take, at most 30. Default 10.
	TimeoutSeconds int64 `json:"timeoutSeconds,omitempty"`
	// maxRows is how many rows are returned, at most 10,000. Default 1,000.
	MaxRows int64 `json:"maxRows,omitempty"`
}

// Status is the answer.
type Status struct {
	// columns are the names of the columns.
	Columns []string `json:"columns"`
	// rows have a value for each column: a number, a boolean, a string, null; bytes are a string in base64.
	Rows [][]any `json:"rows"`
	// cut says why there are not all rows, "" if there are.
	Cut string `json:"cut,omitempty"`
	// milliseconds is how long it took.
	Milliseconds int64 `json:"milliseconds"`
}

// DeepCopyObject implements runtime.Object.
func (q *Query) DeepCopyObject() runtime.Object {
	c := *q
	c.ObjectMeta = *q.ObjectMeta.DeepCopy()
	c.Status.Columns = append([]string(nil), q.Status.Columns...)
	c.Status.Rows = append([][]any(nil), q.Status.Rows...)
	for i, row := range c.Status.Rows {
		c.Status.Rows[i] = append([]any(nil), row...)
	}
	return &c
}
