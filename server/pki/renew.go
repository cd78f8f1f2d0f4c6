package pki

import (
	"context"
	"time"
)

// renewEvery is how often a running server checks whether certificates need renewal.
const renewEvery = 12 * time.Hour

// KeepValid renews certificates until ctx ends, so that a server that runs for a year never serves an expired one. Users of the files
// must watch them, like the content providers of k8s.io/apiserver/pkg/server/dynamiccertificates. It reports failures, and tries
// again the next time.
func (p *PKI) KeepValid(ctx context.Context, report func(error)) {
	ticker := time.NewTicker(renewEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if _, err := Ensure(ctx, p.dataDir, p.opts); err != nil {
				report(err)
			}
		}
	}
}
