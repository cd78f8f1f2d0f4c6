package postgres

import (
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// channel is the NOTIFY channel that carries the newest revision. Postgres
// keeps channels apart by database.
const channel = "sqube"

// listener keeps one connection that hears of commits. While it has none,
// the store's poll is what notices them.
type listener struct {
	newest chan int64
	stop   context.CancelFunc
	done   chan struct{}
}

func listen(config *pgx.ConnConfig) *listener {
	ctx, stop := context.WithCancel(context.Background())
	l := &listener{newest: make(chan int64, 1), stop: stop, done: make(chan struct{})}
	go l.run(ctx, config)
	return l
}

func (l *listener) close() {
	l.stop()
	<-l.done
}

func (l *listener) run(ctx context.Context, config *pgx.ConnConfig) {
	defer close(l.done)
	const shortest, longest = 100 * time.Millisecond, 5 * time.Second
	pause := shortest
	for ctx.Err() == nil {
		began := time.Now()
		// Its error is not worth a word of its own: the pool meets the same
		// database, and its errors reach whoever made the request.
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

// session listens on one connection until it breaks.
func (l *listener) session(ctx context.Context, config *pgx.ConnConfig) error {
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return err
	}
	l.tell(0) // commits may have passed unheard
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		revision, err := strconv.ParseInt(n.Payload, 10, 64)
		if err != nil {
			revision = 0
		}
		l.tell(revision)
	}
}

// tell leaves the revision for the store, over an older one it has not taken.
// 0 means that there may be anything new.
func (l *listener) tell(revision int64) {
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
