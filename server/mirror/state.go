package mirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/sqube/sqube/server/kubecopy"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/history"
)

// state is the record of a follower: which cluster it follows, and how far it has come. It is written now and then, since the log itself has
// the positions of what has changed lately.
type state struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	// Cluster tells the cluster from others, and Server is its URL.
	Cluster string `json:"cluster"`
	Server  string `json:"server"`
	// Process tells the process that follows from others.
	Process string `json:"process"`
	// Seen is when the follower was still running.
	Seen metav1.MicroTime `json:"seen"`
	// Positions are how far the resources are followed.
	Positions []position `json:"positions"`

	record  *sqlstore.Record // what is stored; nil for nothing
	objects map[sqlstore.Resource]map[string]sqlstore.Mirrored
}

type position struct {
	Resource string `json:"resource"` // with its namespace, if it is followed in one
	Version  int64  `json:"version"`
}

// Thin returns rules with one that keeps history from keeping each version of the record.
func Thin(rules history.Rules) history.Rules {
	rules = maps.Clone(rules)
	if rules == nil {
		rules = history.Rules{}
	}
	rules[sqlstore.Mirror.String()] = []string{"seen", "version"}
	return rules
}

const recordName = "state"

// begin returns the state with which the follower begins. It fails if the database is not one of a mirror.
func (f *Follower) begin(ctx context.Context) (s *state, err error) {
	s = &state{objects: map[sqlstore.Resource]map[string]sqlstore.Mirrored{}}
	if s.record, _, err = f.store.Get(ctx, sqlstore.Mirror, recordName); err != nil {
		return nil, err
	}
	if s.record != nil {
		if err := json.Unmarshal(s.record.Value, s); err != nil {
			return nil, fatal{fmt.Errorf("reading how far this mirror has come: %w", err)}
		}
	}
	others := false
	err = f.store.Mirrored(ctx, func(m sqlstore.Mirrored) {
		others = others || m.Version == 0 && m.Resource.Group != sqlstore.InternalGroup
		of := s.objects[m.Resource]
		if of == nil {
			of = map[string]sqlstore.Mirrored{}
			s.objects[m.Resource] = of
		}
		if old, known := of[m.Key]; !known || old.Version < m.Version {
			of[m.Key] = m
		}
	})
	if others {
		return nil, fatal{errors.New("the database is not one of a mirror, but has objects of its own: give another --data-dir or --datastore")}
	}
	return s, err
}

// identify makes the state one of the cluster that is followed. It fails if it is that of another one.
func (f *Follower) identify(ctx context.Context, s *state) error {
	identity, err := f.cluster.Identity(ctx)
	if err != nil {
		return err
	}
	if s.Cluster != "" && s.Cluster != identity {
		return fatal{fmt.Errorf("the database mirrors another cluster than %s, which was at %s: give another --data-dir or --datastore", f.options.Config.Host, s.Server)}
	}
	s.TypeMeta = metav1.TypeMeta{APIVersion: "sqube.io/v1", Kind: "Mirror"}
	s.Name, s.Cluster, s.Server, s.Process = recordName, identity, f.options.Config.Host, string(uuid.NewUUID())
	if s.UID == "" {
		s.UID = uuid.NewUUID()
	}
	seen := s.Seen
	err = f.save(ctx, s)
	s.Seen = seen // until the streams are open
	return err
}

// save writes the state. It fails if another process has written one since.
func (f *Follower) save(ctx context.Context, s *state) error {
	s.Seen = metav1.NewMicroTime(time.Now().UTC())
	value, err := json.Marshal(s)
	if err != nil {
		return err
	}
	w := sqlstore.Internal(sqlstore.Mirror, recordName, s.record, value)
	w.UID = string(s.UID)
	revision, err := f.store.Write(ctx, w)
	if errors.Is(err, sqlstore.ErrConflict) {
		return fatal{errors.New("another sqube mirror follows the cluster into this database: end one of them")}
	}
	if err == nil {
		s.record = &sqlstore.Record{Revision: revision, Key: w.Key, Labels: w.Labels, Fields: w.Fields, Value: value}
	}
	return err
}

// starts has from where the streams of a follower go on that begins. It is of its own, since the state changes then.
type starts struct {
	state
	taken map[string]bool // by the name of the stream
}

func (s *state) starts() *starts {
	from := &starts{state: *s, taken: map[string]bool{}}
	from.Positions = slices.Clone(s.Positions)
	return from
}

// start is from where a stream goes on.
type start struct {
	position int64              // up to which resourceVersion the resource is written, 0 if it has to be listed first
	since    time.Time          // when it was followed last; zero if it was not
	known    map[string]version // what is stored of it
}

// take returns from where a stream goes on. If it is not the first one of that name, it begins with nothing.
func (s *starts) take(name string, r kubecopy.Resource, namespace string) start {
	from := start{known: map[string]version{}}
	if s.taken[name] {
		return from
	}
	s.taken[name] = true
	for _, p := range s.Positions {
		if p.Resource == name { // else a first list was interrupted
			from.position, from.since = p.Version, s.Seen.Time
		}
	}
	for key, m := range s.objects[storedAs(r)] {
		if namespace != "" && !strings.HasPrefix(key, namespace+"/") {
			continue
		}
		if from.position != 0 {
			from.position = max(from.position, m.Version)
		}
		if !m.Deleted {
			from.known[key] = version{m.UID, m.Version}
		}
	}
	return from
}

func storedAs(r kubecopy.Resource) sqlstore.Resource {
	return sqlstore.Resource{Group: r.Group, Name: r.Resource}
}
