package server

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/spf13/pflag"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	"k8s.io/apiserver/pkg/features"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	clientgoelection "k8s.io/client-go/tools/leaderelection"
	"k8s.io/kubernetes/pkg/controlplane/controller/leaderelection"

	"github.com/sqube/sqube/server/flagcheck"
)

// candidateGCPeriod is how often LeaseCandidates of components that are gone are deleted, like upstream.
const candidateGCPeriod = 30 * time.Minute

// addCoordinationFlags adds kube-apiserver's flags for coordinated leader election (KEP-4355).
func addCoordinationFlags(fs *pflag.FlagSet, t *leaderelection.LeaderElectionTimers) {
	fs.DurationVar(&t.LeaseDuration, "coordinated-leadership-lease-duration", t.LeaseDuration, "With the feature gate CoordinatedLeaderElection, one server chooses leaders among LeaseCandidates. How long the others wait before they replace it if it stops renewing its Lease.")
	fs.DurationVar(&t.RenewDeadline, "coordinated-leadership-renew-deadline", t.RenewDeadline, "How long the server that chooses leaders continues if it can't renew its Lease.")
	fs.DurationVar(&t.RetryPeriod, "coordinated-leadership-retry-period", t.RetryPeriod, "How often that server renews its Lease, and others try to take it over.")
}

// checkCoordination checks these flags, and that the API that the feature gate needs is served.
func (o *Options) checkCoordination(served *serverstorage.ResourceConfig) error {
	t := o.Coordination
	var errs flagcheck.Problems
	errs.Unless(t.LeaseDuration > t.RenewDeadline, "--coordinated-leadership-lease-duration must be greater than --coordinated-leadership-renew-deadline")
	errs.Unless(t.RetryPeriod > 0 && t.RenewDeadline > time.Duration(clientgoelection.JitterFactor*float64(t.RetryPeriod)),
		"--coordinated-leadership-renew-deadline must be greater than 1.2 times --coordinated-leadership-retry-period, and that greater than 0")
	errs.Unless(!coordinated() || served.ResourceEnabled(coordinationv1beta1.SchemeGroupVersion.WithResource("leasecandidates")),
		"--feature-gates=CoordinatedLeaderElection=true needs --runtime-config=coordination.k8s.io/v1beta1=true")
	return errors.Join(errs...)
}

func coordinated() bool {
	return utilfeature.DefaultFeatureGate.Enabled(features.CoordinatedLeaderElection)
}

// coordinate chooses leaders among LeaseCandidates until ctx ends, on one server of the cluster at a time.
func (s *Server) coordinate(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(s.loopback.Config())
	if err != nil {
		return err
	}
	leases, candidates := s.informers.Coordination().V1().Leases(), s.informers.Coordination().V1beta1().LeaseCandidates()
	var running sync.WaitGroup
	leaderelection.RunWithLeaderElection(ctx, s.loopback.Config(), func() (func(context.Context, int), error) {
		controller, err := leaderelection.NewController(leases, candidates, client.CoordinationV1(), client.CoordinationV1beta1())
		if err != nil {
			slog.Error("leaders can't be chosen among LeaseCandidates", "error", err)
			return nil, err
		}
		garbage := leaderelection.NewLeaseCandidateGC(client, candidateGCPeriod, candidates)
		return func(ctx context.Context, workers int) {
			running.Go(func() { controller.Run(ctx, workers) })
			running.Go(func() { garbage.Run(ctx) })
		}, nil
	}, s.options.Coordination)
	running.Wait()
	return nil
}
