package postgres

import (
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// channel is the NOTIFY channel that carries the newest revision. Channels are local to a database.
const channel = "sqube"

// pollInterval is how often the counter is read if the server, or a pooler in front of it, has no notifications.
const pollInterval = 200 * time.Millisecond

// listener keeps one connection for notifications of commits and for checks of the server. While it has none, the store's poll
// notices commits.
type listener struct {
	engine *Engine
	newest chan int64
	stop   context.CancelFunc
	done   chan struct{}

	// timeout is the engine's; beat is the pause between checks of the server.
	timeout, beat  time.Duration
	noSessionViews bool // the server lacks the views of sessions
}

func (e *Engine) listen(config *pgxpool.Config, timeout time.Duration) *listener {
	ctx, stop := context.WithCancel(context.Background())
	l := &listener{engine: e, newest: make(chan int64, 1), stop: stop, done: make(chan struct{}), timeout: timeout, beat: 3 * time.Second}
	if timeout > 0 {
		l.beat = min(l.beat, max(timeout/3, 100*time.Millisecond))
	}
	go l.run(ctx, config)
	return l
}

func (l *listener) close() {
	l.stop()
	<-l.done
}

func (l *listener) run(ctx context.Context, config *pgxpool.Config) {
	defer close(l.done)
	const shortest, longest = 100 * time.Millisecond, 5 * time.Second
	pause := shortest
	for ctx.Err() == nil {
		began := time.Now()
		// The error is not logged: the pool returns the same error to its callers.
		_ = l.session(ctx, config)
		if time.Since(began) > longest {
			pause = shortest
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, longest)
	}
}

// session receives notifications on one connection until that breaks. Other connections are then likely to be dead too, or to
// lead to a former primary.
func (l *listener) session(ctx context.Context, config *pgxpool.Config) error {
	conn, err := dial(ctx, config)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(closing)
		l.engine.reset()
	}()
	l.noSessionViews = false
	hear := l.notification
	switch err := l.checkServer(ctx, conn); {
	case answered(err), l.engine.capabilities.pooled, !l.engine.capabilities.notifies:
		hear = l.poll // there is no LISTEN, or a pooler's session would listen, or there are no notifications
	case err != nil:
		return err
	}
	l.publish(0) // commits may have been missed
	for {
		beat, cancel := context.WithTimeout(ctx, l.beat)
		for err = nil; err == nil; {
			err = hear(beat, conn)
		}
		over := beat.Err() != nil
		cancel()
		if ctx.Err() != nil || !over {
			return err
		}
		if err := l.checkServer(ctx, conn); err != nil && !answered(err) {
			return err
		}
	}
}

// notification waits for a notification. It fails when ctx ends. A newer revision than seen so far is read from the counter,
// since any role of the database can send notifications.
func (l *listener) notification(ctx context.Context, conn *pgx.Conn) error {
	n, err := conn.WaitForNotification(ctx)
	if err != nil {
		return err
	}
	revision, err := strconv.ParseInt(n.Payload, 10, 64)
	if err != nil || revision > l.engine.seen.Load() {
		revision, err = l.readCounter(ctx, conn)
	}
	if err == nil {
		l.publish(revision)
	}
	return err
}

// poll waits for pollInterval and reads the counter. It fails when ctx ends.
func (l *listener) poll(ctx context.Context, conn *pgx.Conn) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(pollInterval):
	}
	seen := l.engine.seen.Load()
	revision, err := l.readCounter(ctx, conn)
	if err == nil && revision > seen {
		l.publish(revision)
	}
	return err
}

// readCounter reads the newest revision. ctx may end meanwhile, when the next check is due.
func (l *listener) readCounter(ctx context.Context, conn *pgx.Conn) (revision int64, err error) {
	readCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.beat)
	defer cancel()
	if err := conn.QueryRow(readCtx, "SELECT revision FROM counter").Scan(&revision); err != nil {
		return 0, err
	}
	l.engine.seen.Raise(revision)
	return revision, nil
}

// endStuckSessions ends sessions that hold the counter's lock and have waited that many seconds for their client, because its
// machine or the network failed, or it was stopped, during a commit. All other commits wait for such a session.
const endStuckSessions = `
SELECT count(pg_terminate_backend(a.pid)) FROM pg_stat_activity a JOIN pg_locks l USING (pid)
WHERE a.datname = current_database() AND l.relation = 'counter'::regclass AND l.mode IN ('RowShareLock', 'RowExclusiveLock') AND l.granted
  AND a.wait_event = 'ClientRead' AND clock_timestamp() - greatest(a.query_start, a.state_change) > make_interval(secs => $1)`

// checkServer finds out whether the server answers and accepts writes, ends stuck sessions, and listens again.
func (l *listener) checkServer(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, l.beat)
	defer cancel()
	if err := pgconn.ValidateConnectTargetSessionAttrsReadWrite(ctx, conn.PgConn()); err != nil {
		return err
	}
	if l.timeout > 0 && !l.noSessionViews {
		_, err := conn.Exec(ctx, endStuckSessions, (l.timeout / 2).Seconds())
		if l.noSessionViews = answered(err); err != nil && !l.noSessionViews {
			return err
		}
	}
	if l.engine.capabilities.pooled {
		return nil
	}
	_, err := conn.Exec(ctx, "LISTEN "+channel)
	return err
}

// publish passes the revision to the store, replacing one not received yet. 0 means that there may be something new.
func (l *listener) publish(revision int64) {
	for {
		select {
		case l.newest <- revision:
			return
		default:
		}
		select {
		case older := <-l.newest:
			if older == 0 {
				revision = 0
			}
		default:
		}
	}
}
