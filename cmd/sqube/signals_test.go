package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"testing"
)

func TestNoSignalEndsACommandThatIgnoresThem(t *testing.T) {
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}
	signal.Ignore(ends...)
	t.Cleanup(func() { signal.Reset(ends...) })
	if untilInterrupt(context.Background()).Done() != nil {
		t.Error("a signal would end it")
	}
}
