package logbackup

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"
)

// An S3 store has no locks, so its holder keeps rewriting a file. If the file does not change for leaseTime and half as long again, the
// holder is gone. Only this machine's clock is used.
const (
	leaseName  = "holder.json"
	leaseRenew = 5 * time.Second
	leaseTime  = 4 * leaseRenew
	leaseEnd   = 2 * leaseRenew // how long to try to remove the file in the end
)

// lease is the content of leaseName.
type lease struct {
	Holder  string `json:"holder"`
	Beat    int64  `json:"beat"` // how often it was renewed
	Host    string `json:"host"`
	Process int    `json:"process"`
	// Processes is where Process is the id of a process, "" if unknown. Several machines or containers may have the same host name.
	Processes string `json:"processes"`
}

func newLease() lease {
	l := lease{Holder: rand.Text(), Process: os.Getpid()}
	l.Host, _ = os.Hostname() // only for messages
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	namespace, failed := os.Readlink("/proc/self/ns/pid")
	if errors.Join(err, failed) == nil {
		l.Processes = strings.TrimSpace(string(boot)) + "/" + namespace
	}
	return l
}

// gone reports whether the former holder was a process beside this one and has ended.
func (own lease) gone(former *lease) bool {
	if own.Processes == "" || former.Processes != own.Processes {
		return false
	}
	return former.Process == own.Process || errors.Is(syscall.Kill(former.Process, 0), syscall.ESRCH)
}

func (b *bucket) Hold(ctx context.Context) (<-chan struct{}, func() error, error) {
	own := newLease()
	if err := b.awaitLease(ctx, own); err != nil {
		return nil, nil, err
	}
	if err := b.writeLease(ctx, own); err != nil {
		return nil, nil, err
	}
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	lost, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		if !b.renew(renewing, own) {
			close(lost)
		}
	}()
	return lost, func() error {
		stop()
		<-ended
		select {
		case <-lost:
			return nil
		default:
		}
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseEnd)
		defer cancel()
		return b.Remove(bounded, leaseName)
	}, nil
}

// awaitLease returns when the store has no holder.
func (b *bucket) awaitLease(ctx context.Context, own lease) error {
	found, err := b.readLease(ctx)
	if err != nil || found == nil || own.gone(found) {
		return err
	}
	for waited := time.Duration(0); waited < leaseTime; waited += leaseRenew {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(leaseRenew + leaseRenew/2):
		}
		now, err := b.readLease(ctx)
		switch {
		case err != nil || now == nil:
			return err
		case *now != *found:
			return fmt.Errorf("%w (it is process %d on %s)", ErrHeld, now.Process, now.Host)
		}
	}
	return nil
}

// renew renews the lease until ctx ends. It returns false if another process has taken it. While the store is unreachable it keeps
// trying.
func (b *bucket) renew(ctx context.Context, own lease) bool {
	for {
		own.Beat++
		select {
		case <-ctx.Done():
			return true
		case <-time.After(leaseRenew):
		}
		bounded, cancel := context.WithTimeout(ctx, leaseTime)
		now, err := b.readLease(bounded)
		if err == nil && (now == nil || now.Holder == own.Holder) {
			_ = b.writeLease(bounded, own) // retried in the next round
		}
		cancel()
		if err == nil && now != nil && now.Holder != own.Holder {
			return false
		}
	}
}

// readLease returns nil if there is none.
func (b *bucket) readLease(ctx context.Context) (*lease, error) {
	from, err := b.Open(ctx, leaseName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer from.Close()
	l := &lease{}
	if err := json.NewDecoder(from).Decode(l); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", b, leaseName, err)
	}
	return l, nil
}

func (b *bucket) writeLease(ctx context.Context, l lease) error {
	return b.Put(ctx, leaseName, func(to io.Writer) error { return json.NewEncoder(to).Encode(l) })
}
