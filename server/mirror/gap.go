package mirror

import (
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/sqlstore"
)

// Gap is a record in history of what was not seen as it happened.
type Gap struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	// Resources are those that were not followed, each with its namespace if only that is followed.
	Resources []string `json:"resources"`
	// Since and Until are when it was.
	Since metav1.Time `json:"since"`
	Until metav1.Time `json:"until"`
	// Lost is set if the cluster did not tell afterwards what had happened: then history has only the difference, written at Until. Otherwise it
	// has everything, with the times at which it was told, after Until.
	Lost bool `json:"lost,omitempty"`
}

const gapName = "gap"

func newGap(resource string, since, until time.Time, lost bool) *Gap {
	return &Gap{
		TypeMeta: metav1.TypeMeta{APIVersion: "sqube.io/v1", Kind: "Gap"}, ObjectMeta: metav1.ObjectMeta{Name: gapName},
		Resources: []string{resource}, Since: metav1.NewTime(since.UTC()), Until: metav1.NewTime(until.UTC()), Lost: lost,
	}
}

// add makes g include another gap.
func (g *Gap) add(other *Gap) {
	g.Resources = append(g.Resources, other.Resources...)
	if other.Since.Before(&g.Since) {
		g.Since = other.Since
	}
	if g.Until.Before(&other.Until) {
		g.Until = other.Until
	}
}

// write returns the write of the record, which replaces that of the gap before.
func (g *Gap) write(previous *sqlstore.Record) (*sqlstore.Write, error) {
	value, err := json.Marshal(g)
	return sqlstore.Internal(sqlstore.Gaps, gapName, previous, value), err
}
