package mirror

import (
	"context"
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

// loss is a gap to which streams add what they have lost, until it is written.
type loss struct {
	*Gap
	written chan struct{}
}

// lose has a gap of a stream written, in one with those of other streams: when an API server restarts, all have one. It returns when the gap is
// on its way to the writer, so that the difference follows it.
func (f *Follower) lose(ctx context.Context, s *stream, g *Gap) error {
	f.mu.Lock()
	of := f.lost
	if of != nil {
		of.add(g)
		f.mu.Unlock()
		select {
		case <-of.written:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	of = &loss{g, make(chan struct{})}
	f.lost = of
	f.mu.Unlock()
	defer close(of.written)
	sleep(ctx, gathering)
	f.mu.Lock()
	f.lost = nil
	f.mu.Unlock()
	f.log.Warn("the cluster does not know any more what has happened to resources; listing them again", "resources", len(of.Resources), "since", of.Since.Time)
	return f.send(ctx, event{stream: s, kind: missed, gap: of.Gap})
}
