package servertest

import (
	"errors"
	"net"
	"os"
	"os/signal"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/history"
)

func init() {
	if testing.Testing() { // before any bubble
		if err := PrepareVirtual(); err != nil {
			panic(err)
		}
	}
}

// PrepareVirtual changes what Kubernetes' libraries keep for the whole process, so that it does not stop or mislead the clock of a bubble. A process
// that is no test calls it once, before it makes bubbles.
func PrepareVirtual() error {
	// A goroutine that also waits for a channel from outside its bubble stops the clock. This one is never closed, and receiving from nil
	// blocks as long.
	wait.NeverStop = nil
	// The second handler sleeps until a millisecond after the last error, which may have happened in a later time.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	// The first use of a signal, which the scheduler makes, starts goroutines and creates channels for the process.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGUSR2)
	signal.Stop(signals)
	return history.Prepare()
}

// inBubble reports whether the caller is in a bubble of testing/synctest, whose clock is not the machine's.
func inBubble() (bool, error) {
	var real unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME, &real); err != nil {
		return false, err
	}
	return time.Since(time.Unix(real.Unix())).Abs() > time.Minute, nil
}

// checkTime returns an error if the server would wait for another time than the test.
func checkTime(o Options) error {
	bubble, err := inBubble()
	switch {
	case err != nil:
		return err
	case o.Virtual && !bubble:
		return errors.New("Options.Virtual needs a bubble: start the server in the function that the test gives synctest.Test")
	case bubble && !o.Virtual:
		return errors.New("in a bubble of testing/synctest, a server must have Options.Virtual")
	}
	return nil
}

// storeOptions returns the settings of the store. In a bubble, versions are removed rarely, since each look for them holds up the clock.
func (o *Options) storeOptions() (s sqlstore.Options, err error) {
	s.History = o.History
	if s.HistoryThin, err = history.ParseRules(history.DefaultRules); err == nil && o.Virtual {
		s.Virtual, s.CompactInterval = true, sqlstore.DefaultRetention
	}
	return s, err
}

// Listen listens like net.Listen, where the server connects to: for webhooks, aggregated API servers and kubelets of the test. With
// Options.Virtual, only this process's clients can connect.
func (s *Server) Listen(network, address string) (net.Listener, error) {
	listen := net.Listen
	if s.network != nil {
		listen = s.network.Listen
	}
	listener, err := listen(network, address)
	if err != nil {
		return nil, err
	}
	s.allow(listener.Addr().String())
	if s.faults != nil {
		listener = &slowListener{Listener: listener, faults: s.faults}
	}
	return listener, nil
}
