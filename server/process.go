package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	etcd3metrics "k8s.io/apiserver/pkg/storage/etcd3/metrics"

	"github.com/sqube/sqube/sqlstore"
)

// Process is a server with its store, from the database to the port.
type Process struct {
	Options *Options // complete
	// Store has the settings of the store.
	Store sqlstore.Options
	// Open opens the store with these settings.
	Open func(context.Context, sqlstore.Options) (*sqlstore.Store, error)
	// Built is called in a goroutine when the server has been built and begins to serve; see Server.Wait. Optional.
	Built func(context.Context, *Server)
	// Stopped is called when nothing uses the store any more, before it is closed. Optional.
	Stopped func(*sqlstore.Store)
	// Outlived is set if this process of the operating system goes on after Run: then Run ends what was begun of a server that can't be built.
	// Upstream's controllers log errors then, before the one that Run returns.
	Outlived bool
}

// CheckClock returns an error if the machine's clock can't be right.
func CheckClock() error {
	if now := time.Now(); now.Before(sqlstore.FirstTime) {
		return fmt.Errorf("this machine's clock says %s: set it first, or certificates and timestamps would be wrong", now.Format(time.RFC3339))
	}
	return nil
}

// Run serves on listener until ctx ends, and returns when everything has stopped and the store is closed. Errors name what
// failed to start or stop.
func (p Process) Run(ctx context.Context, listener net.Listener) error {
	p.Store.OnBatch = func(took time.Duration) { batches.Observe(took.Seconds()) }
	p.Store.OnRequest = observeRequest
	changed := p.Store.OnChange
	p.Store.OnChange = func(r sqlstore.Resource) {
		etcd3metrics.RecordEtcdEvent(groupResource(r))
		if changed != nil {
			changed(r)
		}
	}
	p.Store.OnGroup = func(writes int) { groups.Observe(float64(writes)) }
	store, err := p.Open(ctx, p.Store)
	if err != nil {
		return err
	}
	if p.Options.Hosted == nil { // the host counts them all together
		defer stores.add(store)()
	}
	s, err := New(ctx, p.Options, store)
	if err == nil {
		if p.Options.Hosted == nil {
			defer certificates.add(s)()
		}
		defer schemas.add(s)()
		defer unconfirmed.add(s)()
		if p.Built != nil {
			go p.Built(ctx, s)
		}
		err = s.Run(ctx, listener)
	} else if s != nil && p.Outlived {
		err = errors.Join(err, s.end())
	} else if s != nil {
		s.endReads()
	}
	if p.Stopped != nil {
		p.Stopped(store)
	}
	if closing := stopWithin(p.Options.ShutdownGracePeriod, "database", store.Close); closing != nil {
		err = errors.Join(err, fmt.Errorf("closing the database: %w", closing))
	}
	return err
}
