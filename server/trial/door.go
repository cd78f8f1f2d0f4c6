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
	speed     = 100
)

// door lets processes outside of a bubble connect to a server inside of it. Its channels are made outside: a goroutine of the bubble that waits
// for one stops the bubble's clock.
type door struct {
	listener net.Listener
	events   chan event
	ticks    chan time.Duration
	closed   chan struct{}
	close    sync.Once
	active   atomic.Int64 // when a byte went through last, in nanoseconds of the outside
	started  time.Time
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

// openDoor opens a door on a free port of this machine. It is called outside.
func openDoor() (*door, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d := &door{listener: listener, events: make(chan event), ticks: make(chan time.Duration), closed: make(chan struct{}), started: time.Now()}
	d.touch()
	go d.accept()
	go d.tick()
	return d, nil
}

func (d *door) touch() { d.active.Store(int64(time.Since(d.started))) }

func (d *door) accept() {
	for {
		conn, err := d.listener.Accept()
		if err != nil {
			return
		}
		go d.read(&visitor{conn: conn})
	}
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

// tick lets time pass while nobody talks.
func (d *door) tick() {
	step, last := firstStep, int64(0)
	for {
		active := d.active.Load()
		if active != last {
			step, last = firstStep, active
		}
		if rest := quiet - (time.Since(d.started) - time.Duration(active)); rest > 0 {
			time.Sleep(rest)
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
func (d *door) shut() {
	d.close.Do(func() {
		close(d.closed)
		_ = d.listener.Close()
	})
}
