// Package trial tries a change on a copy of a cluster, in virtual time.
package trial

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/server"
	"github.com/sqube/sqube/server/servertest"
)

// Options say what is tried, and on what.
type Options struct {
	// From is the copy: a file. Source says in words what it is a copy of.
	From, Source string
	// Moment is when the state of the copy is of.
	Moment time.Time
	// Missing is what could not be copied, and why, in lines.
	Missing []string
	// User and Groups make the change.
	User   string
	Groups []string
	// Grants are what the user may do besides what the copy says: clusters know other ways than RBAC, and a user may not be able to read it.
	Grants []Grant
	// Namespaces are there, even if they could not be copied.
	Namespaces []string
	// For is how long the cluster is watched after the change.
	For time.Duration
	// Outbound are addresses, HOST or HOST:PORT, of webhooks that are called. Those of Services are at NAME.NAMESPACE.svc:PORT.
	Outbound []string
	// Beside are programs of the cluster that run outside.
	Beside []Beside
	// Configure changes the options of the servers. Optional.
	Configure func(*server.Options)
	// Save is a new file that gets the trial's database at the end, with all that happened. Optional.
	Save string

	// Lost are nodes that fail when the change is made, and Loads are how much some Pods have to do from then on.
	Lost  []string
	Loads []Load
	// Words say in words what the change is, and Real is the command that makes it for real, if there is one.
	Words, Real string
	// Change makes the change, as the user of the configuration. It notes what the API answers. An error means that it could not be tried.
	Change func(ctx context.Context, config *rest.Config, answers *Answers) error
	// Command makes the change instead. It is called outside, for programs in other processes, which time waits for: it passes while they are silent.
	// What the API answers is noted. It returns soon after ctx has ended.
	Command func(ctx context.Context, config *rest.Config, answers *Answers) error
}

// ErrTired is the cause of the end of a Command's context after it has waited for Options.For, in the time of the copy, without asking for a change.
var ErrTired = errors.New("it has waited long enough")

var errEnded = errors.New("the trial has ended")

// Run tries a change. If ctx ends first, it leaves the trial behind and returns when the programs outside have ended: the process is to end soon.
func Run(ctx context.Context, o Options) (*Result, error) {
	if err := servertest.PrepareVirtual(); err != nil {
		return nil, err
	}
	outside, err := prepareWebhooks(o.Outbound)
	if err != nil {
		return nil, err
	}
	answers := &Answers{}
	var running sync.WaitGroup // what runs outside
	ctx, cancel := context.WithCancelCause(ctx)
	defer running.Wait()
	defer cancel(errEnded)
	besides := [2]*beside{o.beginBeside(ctx, &running, false, answers), o.beginBeside(ctx, &running, true, &Answers{})}
	change := func(ctx context.Context, config *rest.Config) error { return o.Change(ctx, config, answers) }
	if o.Command != nil {
		change = o.commanded(ctx, &running, answers)
	}
	type twin struct {
		outcome *outcome
		err     error
	}
	type ended struct {
		result *Result
		err    error
	}
	twins, end, results := make(chan twin, 1), make(chan time.Time, 1), make(chan ended, 1) // the time is that of the trial
	go inBubbles(func() {
		out, err := o.run(outside, besides[0], change, func(t time.Time) time.Time { end <- t; return t })
		close(end)
		var result *Result
		if err == nil {
			other := <-twins // it reads in its own bubble
			if err = other.err; err == nil {
				result, err = compare(context.Background(), out, other.outcome, answers)
			}
			if err == nil {
				result.Touched, result.Command = out.touched(), o.Real
				result.Webhooks = out.webhooks.moreThan(other.outcome.webhooks)
				result.Tried = Tried{
					Source: o.Source, Change: o.Words, User: o.User, Missing: o.Missing, Moment: o.Moment,
					Begin: out.begin, For: Duration(out.end.Sub(out.begin)), Nodes: out.nodes, Objects: out.objects,
				}
			}
		}
		results <- ended{result, err}
	}, func() {
		out, err := o.run(outside, besides[1], nil, func(t time.Time) time.Time { // the twin's time stands still while it waits
			if end, ok := <-end; ok {
				return end
			}
			return t
		})
		twins <- twin{out, err}
	})
	select {
	case made := <-results:
		return made.result, made.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// commanded returns the change that the command makes.
func (o *Options) commanded(ctx context.Context, running *sync.WaitGroup, answers *Answers) func(context.Context, *rest.Config) error {
	d := openDoor(o.For)
	ctx, cancel := context.WithCancelCause(ctx)
	begin, ended := make(chan *rest.Config), make(chan error, 1)
	running.Go(func() {
		var config *rest.Config
		select {
		case config = <-begin:
		case <-ctx.Done():
			return
		}
		err := o.Command(ctx, config, answers)
		answers.commandEnded()
		d.shut()
		ended <- err
	})
	go func() {
		<-d.tired
		cancel(ErrTired)
	}()
	return func(inside context.Context, config *rest.Config) error {
		outside, err := (&access{door: d, answers: answers}).outside(config, time.Now())
		if err != nil {
			return err
		}
		begin <- outside
		d.serve(inside, func(ctx context.Context) (net.Conn, error) {
			return config.Dial(ctx, "tcp", strings.TrimPrefix(config.Host, "https://"))
		})
		return <-ended
	}
}

// historyOf returns for how long history must be kept: a command can take longer than the copy is watched after it.
func historyOf(span time.Duration) time.Duration { return max(24*time.Hour, 4*span) }

// run runs a copy. until gets the time until which it would be watched, and returns that until which it is.
func (o *Options) run(outside *outsideWebhooks, programs *beside, change func(context.Context, *rest.Config) error, until func(time.Time) time.Time) (*outcome, error) {
	ctx := context.Background() // of the bubble: one from outside would stop its clock
	w, err := o.begin(ctx, outside, programs)
	if err != nil {
		return nil, err
	}
	w.webhooks.begin()
	out := &outcome{begin: time.Now(), webhooks: w.webhooks, user: o.User, nodes: len(w.nodes.Load().Names())}
	revision, err := w.Revision(ctx)
	if err != nil {
		return nil, err
	}
	if change != nil {
		config, err := w.User(o.User, o.Groups...)
		if err != nil {
			return nil, err
		}
		w.loads.give(o.Loads)
		if err := w.lose(o.Lost); err != nil {
			return nil, err
		}
		if err := change(ctx, config); err != nil {
			return nil, err
		}
	}
	time.Sleep(time.Until(until(time.Now().Add(o.For))))
	out.end = time.Now()
	programs.leave()
	after, err := strconv.ParseInt(revision, 10, 64)
	if err == nil {
		err = collect(ctx, w.History(), after, out)
	}
	if err == nil && change != nil && o.Save != "" {
		err = w.Save(o.Save)
	}
	return out, err
}
