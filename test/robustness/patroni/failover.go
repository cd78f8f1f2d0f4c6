package patroni

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// pollPause is the interval at which the roles of the nodes are polled.
const pollPause = 200 * time.Millisecond

// roles are the nodes that are the leader and its synchronous standby, nil if there is none.
type roles struct {
	leader, standby *node
	following       int // how many standbys the leader sends its log to
}

// AwaitWhole waits until all nodes run, with a leader and a synchronous standby.
func (c *Cluster) AwaitWhole(ctx context.Context) error {
	_, err := c.await(ctx, "not all nodes follow one, with a synchronous standby", nil, func(r roles) bool {
		return r.leader != nil && r.standby != nil && r.following == len(c.nodes)-1
	})
	return err
}

// Switchover makes another node the leader, in a planned way, as before maintenance of the primary.
func (c *Cluster) Switchover(ctx context.Context) error {
	before, err := c.led(ctx)
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string]string{"leader": before.leader.name})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+before.leader.control+"/switchover", bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if answer, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusOK {
		return fmt.Errorf("switchover: %s: %s %w", response.Status, answer, err)
	}
	return nil
}

// KillPrimary simulates a power loss of the primary's machine until another node leads.
func (c *Cluster) KillPrimary(ctx context.Context) error {
	return c.without(ctx, func(r roles) *node { return r.leader }, (*node).kill, (*node).start)
}

// KillStandby simulates a power loss of the synchronous standby's machine until the primary has another standby.
func (c *Cluster) KillStandby(ctx context.Context) error {
	return c.without(ctx, func(r roles) *node { return r.standby }, (*node).kill, (*node).start)
}

// CutOffPrimary disconnects the primary from the network until another node leads.
func (c *Cluster) CutOffPrimary(ctx context.Context) error {
	return c.without(ctx, func(r roles) *node { return r.leader },
		func(n *node) error { n.cutOff(); return nil },
		func(n *node) error { n.resume(); return nil })
}

// without takes a node away until the others have a leader and a standby, and gives it back.
func (c *Cluster) without(ctx context.Context, choose func(roles) *node, take, giveBack func(*node) error) error {
	before, err := c.led(ctx)
	if err != nil {
		return err
	}
	n := choose(before)
	if err := take(n); err != nil {
		return err
	}
	if _, err := c.await(ctx, "no other nodes lead and follow", n, func(r roles) bool {
		return r.leader != nil && r.leader != n && r.standby != nil && r.standby != n
	}); err != nil {
		return err
	}
	return giveBack(n)
}

// led waits until there is a leader with a synchronous standby.
func (c *Cluster) led(ctx context.Context) (roles, error) {
	return c.await(ctx, "no node leads with a synchronous standby", nil, func(r roles) bool { return r.leader != nil && r.standby != nil })
}

// await polls the nodes, except for one that is away, until their roles are as wanted.
func (c *Cluster) await(ctx context.Context, otherwise string, away *node, wanted func(roles) bool) (roles, error) {
	for {
		var r roles
		for _, n := range c.nodes {
			if n != away {
				r.add(n, n.ask(ctx))
			}
		}
		if wanted(r) {
			return r, nil
		}
		select {
		case <-ctx.Done():
			return roles{}, fmt.Errorf("%s: %w", otherwise, ctx.Err())
		case <-time.After(pollPause):
		}
	}
}

// status is what Patroni reports about its node.
type status struct {
	State, Role string
	Standby     bool                     `json:"sync_standby"`     // as stored in etcd
	Unlocked    bool                     `json:"cluster_unlocked"` // no node leads
	Replication []struct{ State string } // to standbys
}

// ask returns the status of a node from its Patroni, or an empty one if that does not respond.
func (n *node) ask(ctx context.Context) (s status) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.control+"/patroni", nil)
	if err != nil {
		return status{}
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return status{} // the node is down
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&s); err != nil {
		return status{} // it has just gone down
	}
	return s
}

func (r *roles) add(n *node, s status) {
	switch {
	case s.State != "running" || s.Unlocked:
	case s.Role == "master":
		r.leader, r.following = n, 0
		for _, to := range s.Replication {
			if to.State == "streaming" {
				r.following++
			}
		}
	case s.Standby:
		r.standby = n
	}
}
