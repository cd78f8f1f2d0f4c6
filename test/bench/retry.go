package main

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// listCached makes the server answer a list from its memory.
var listCached = metav1.ListOptions{ResourceVersion: "0"}

// persistAttempts and persistPause define for how long a client retries if a server does not respond.
const (
	persistAttempts = 20
	persistPause    = 250 * time.Millisecond
)

// persist retries a request that has not succeeded and whose response may have been lost. What already exists counts as
// created.
func persist(ctx context.Context, request func() error) (err error) {
	for attempt := range persistAttempts {
		if err = request(); err == nil || attempt > 0 && apierrors.IsAlreadyExists(err) {
			return nil
		}
		if err := wait(ctx, persistPause); err != nil {
			return err
		}
	}
	return err
}

// untilTimeout limits the wait of until, and untilPause is the pause between its checks.
const (
	untilTimeout = 5 * time.Minute
	untilPause   = 250 * time.Millisecond
)

// until waits until holds returns true. If that takes too long, its error says why.
func until(ctx context.Context, what string, holds func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, untilTimeout)
	defer cancel()
	for {
		ok, err := holds()
		if ok {
			return nil
		}
		if waited := wait(ctx, untilPause); waited != nil {
			return fmt.Errorf("waiting until %s: %w (%v)", what, waited, err)
		}
	}
}
