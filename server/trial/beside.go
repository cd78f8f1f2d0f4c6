package trial

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
)

// Beside is a program outside that is a part of the cluster, such as an operator.
type Beside struct {
	// Name is that of its user, who may do everything.
	Name string
	// Run runs it until ctx ends: one in the trial, and one in the twin.
	Run func(ctx context.Context, config *rest.Config, twin bool) error
}

// beside are the programs beside one copy. It is made outside.
type beside struct {
	programs []Beside
	door     *door
	begin    []chan *rest.Config
}

// beginBeside has programs wait for a copy. running waits for their end, which follows that of ctx.
func (o *Options) beginBeside(ctx context.Context, running *sync.WaitGroup, twin bool, answers *Answers) *beside {
	if len(o.Beside) == 0 {
		return nil
	}
	b := &beside{programs: o.Beside, door: openDoor(math.MaxInt64)}
	for _, p := range o.Beside {
		begin := make(chan *rest.Config)
		b.begin = append(b.begin, begin)
		running.Go(func() {
			var config *rest.Config
			select {
			case config = <-begin:
			case <-ctx.Done():
				return
			}
			err := p.Run(ctx, config, twin)
			if ctx.Err() == nil { // it was to run until then
				if err == nil {
					err = errors.New("nobody told it to")
				}
				answers.Fail(fmt.Sprintf("%s, which was to run beside the copy, ended before the trial: %s.", p.Name, err))
				b.door.open() // time does not wait for it
			}
		})
	}
	return b
}

// join lets the programs in to a copy. It is called inside.
func (b *beside) join(w *world) error {
	if b == nil {
		return nil
	}
	for i, p := range b.programs {
		config, err := w.User(p.Name, user.SystemPrivilegedGroup)
		if err != nil {
			return err
		}
		outside, err := (&access{door: b.door, answers: &Answers{}}).outside(config, time.Now())
		if err != nil {
			return err
		}
		b.begin[i] <- outside
	}
	go b.door.serve(context.Background(), func(ctx context.Context) (net.Conn, error) {
		return w.Config.Dial(ctx, "tcp", strings.TrimPrefix(w.Config.Host, "https://"))
	})
	return nil
}

// leave shuts the programs out.
func (b *beside) leave() {
	if b != nil {
		b.door.shut()
	}
}
