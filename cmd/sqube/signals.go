package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"sync/atomic"
	"syscall"
)

// untilInterrupt returns a context that ends with the first signal that would end the process, so that a command can remove
// unfinished files. The second signal ends the process.
func untilInterrupt(ctx context.Context) context.Context {
	ends := slices.DeleteFunc([]os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}, signal.Ignored) // such as under nohup
	if len(ends) == 0 {
		return ctx // NotifyContext would take none for all, also those that end nothing
	}
	ctx, stop := signal.NotifyContext(ctx, ends...)
	context.AfterFunc(ctx, stop)
	return ctx
}

// untilSignal returns a context that ends with the first SIGTERM or SIGINT, which also sets stopping. The second one ends the
// process.
func untilSignal(ctx context.Context, stopping *atomic.Bool) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	go func() {
		name := <-signals
		slog.Info("stopping; a second signal ends the process at once", "signal", name.String())
		stopping.Store(true)
		cancel()
		<-signals
		os.Exit(1)
	}()
	return ctx, cancel
}
