package pki

import (
	"context"
	"time"
)

// renewEvery is how often a running server looks whether certificates need renewal.
const renewEvery = 12 * time.Hour

// KeepValid renews certificates while the server runs, until ctx ends, so that one which runs for a year does not come to
// serve an expired certificate. Whoever uses the files picks the change up by watching them, as the content providers of
// k8s.io/apiserver/pkg/server/dynamiccertificates do. A failure is given to report and tried again the next time.
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
