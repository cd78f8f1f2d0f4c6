package trial

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// How time passes for processes outside: it stands still while they and the server talk, and passes when both have been silent for quiet. Then
// step by step, in each of which it passes at most speed times as fast as outside, so that a client that sleeps between its questions does not
// miss hours.
const (
	quiet     = 30 * time.Millisecond
	firstStep = 100 * time.Millisecond
	lastStep  = 2 * time.Second
	speed     = 30
)

// door lets connections from outside of a bubble in to a server inside of it. Its channels are made outside: a goroutine of the bubble that waits
// for one stops the bubble's clock.
type door struct {
	events  chan event
	ticks   chan time.Duration
	closed  chan struct{}
	close   sync.Once
	entered chan struct{} // closed when the first visitor comes
	enters  sync.Once
	active  atomic.Int64 // how often bytes went through: inside, nobody knows the time outside

	patience time.Duration // how long, in the time inside, visitors may wait without a write
	waited   atomic.Int64  // how long they have
	tired    chan struct{} // closed then
}

// event is what a visitor does: it comes, says something, or leaves.
type event struct {
	from *visitor
	data []byte // nil when it comes
	left bool
}

// visitor is a connection from outside.
type visitor struct {
	conn   net.Conn
	inside chan []byte // made inside
}

// openDoor is called outside.
func openDoor(patience time.Duration) *door {
	d := &door{
		events: make(chan event), ticks: make(chan time.Duration), closed: make(chan struct{}), entered: make(chan struct{}),
		patience: patience, tired: make(chan struct{}),
	}
	go d.tick()
	return d
}

func (d *door) touch() { d.active.Add(1) }

// wrote notes that a visitor has asked for a change.
func (d *door) wrote() { d.waited.Store(0) }

// open lets time pass while nobody talks.
func (d *door) open() { d.enters.Do(func() { close(d.entered) }) }

// enter returns a connection to the server inside.
func (d *door) enter(ctx context.Context) (net.Conn, error) {
	select {
	case <-d.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	default:
	}
	d.open()
	ours, theirs := net.Pipe()
	go d.read(&visitor{conn: theirs})
	return ours, nil
}

// read passes on what a visitor says.
func (d *door) read(v *visitor) {
	defer v.conn.Close()
	d.send(event{from: v})
	for {
		data := make([]byte, 32<<10)
		n, err := v.conn.Read(data)
		if n > 0 {
			d.send(event{from: v, data: data[:n]})
		}
		if err != nil {
			d.send(event{from: v, left: true})
			return
		}
	}
}

func (d *door) send(e event) {
	d.touch()
	select {
	case d.events <- e:
	case <-d.closed:
	}
}

// tick lets time pass while nobody talks, from when the first visitor has come: programs take a while to start.
func (d *door) tick() {
	select {
	case <-d.entered:
	case <-d.closed:
		return
	}
	step, last := firstStep, int64(0)
	for {
		if active := d.active.Load(); active != last {
			step, last = firstStep, active
			time.Sleep(quiet)
			continue
		}
		select {
		case d.ticks <- step:
			time.Sleep(step / speed)
			step = min(2*step, lastStep)
		case <-d.closed:
			return
		}
	}
}

// serve lets visitors in, until the door is closed. It is called inside, and holds the clock.
func (d *door) serve(ctx context.Context, dial func(context.Context) (net.Conn, error)) {
	for {
		select {
		case e := <-d.events:
			switch {
			case e.data != nil:
				e.from.inside <- e.data
			case e.left:
				close(e.from.inside)
			default:
				e.from.inside = make(chan []byte, 64)
				go d.host(ctx, e.from, dial)
			}
		case step := <-d.ticks:
			time.Sleep(step)
			if d.waited.Add(int64(step)) >= int64(d.patience) {
				select {
				case <-d.tired:
				default:
					close(d.tired)
				}
			}
		case <-d.closed:
			return
		}
	}
}

// host connects a visitor with the server.
func (d *door) host(ctx context.Context, v *visitor, dial func(context.Context) (net.Conn, error)) {
	conn, err := dial(ctx)
	if err != nil {
		v.conn.Close()
		for range v.inside {
		}
		return
	}
	go func() {
		_, _ = io.Copy(touching{d, v.conn}, conn) // it ends with either connection
		v.conn.Close()
	}()
	for data := range v.inside {
		if _, err := conn.Write(data); err != nil {
			break
		}
	}
	conn.Close()
	for range v.inside {
	}
}

// touching notes that bytes go out.
type touching struct {
	door *door
	io.Writer
}

func (t touching) Write(p []byte) (int, error) {
	n, err := t.Writer.Write(p)
	t.door.touch()
	return n, err
}

// shut closes the door.
func (d *door) shut() { d.close.Do(func() { close(d.closed) }) }
