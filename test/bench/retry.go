package main

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// listCached has a list answered from what the server has in memory.
var listCached = metav1.ListOptions{ResourceVersion: "0"}

// persistAttempts and persistPause say how long a client insists when a server does not answer.
const (
	persistAttempts = 20
	persistPause    = 250 * time.Millisecond
)

// persist repeats a request that has not succeeded, whose answer may have been lost. What is there already counts as created.
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

// untilTimeout bounds what until waits for, and untilPause is between its looks.
const (
	untilTimeout = 5 * time.Minute
	untilPause   = 250 * time.Millisecond
)

// until waits until holds returns true. Its error says why it does not, if that goes on for too long.
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
