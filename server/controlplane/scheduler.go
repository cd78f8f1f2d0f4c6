package controlplane

import (
	"context"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"

	"github.com/sqube/sqube/server/controllers"
)

// SchedulerController returns kube-scheduler, or nil if --scheduler is not set. It works once Complete has returned nil.
func (o *Options) SchedulerController() *controllers.Controller {
	if !o.Scheduler {
		return nil
	}
	return &controllers.Controller{Name: "kube-scheduler", Build: o.buildScheduler}
}

// buildScheduler builds it as kube-scheduler's own command does.
func (o *Options) buildScheduler(ctx context.Context, shared controllers.Shared) (func(context.Context), error) {
	client, err := kubernetes.NewForConfig(rest.AddUserAgent(rest.CopyConfig(shared.Scheduler), "scheduler"))
	if err != nil {
		return nil, err
	}
	settings := o.scheduler
	broadcaster := events.NewEventBroadcasterAdapterWithContext(ctx, client)
	informers := schedulable{shared.Informers}
	collecting, end := context.WithCancel(ctx)
	s, err := scheduler.New(collecting, client, informers, nil,
		func(name string) events.EventRecorderLogger { return broadcaster.NewRecorder(name) },
		scheduler.WithComponentConfigVersion(settings.APIVersion),
		scheduler.WithKubeConfig(shared.Scheduler),
		scheduler.WithProfiles(settings.Profiles...),
		scheduler.WithPercentageOfNodesToScore(settings.PercentageOfNodesToScore),
		scheduler.WithPodMaxBackoffSeconds(settings.PodMaxBackoffSeconds),
		scheduler.WithPodInitialBackoffSeconds(settings.PodInitialBackoffSeconds),
		scheduler.WithExtenders(settings.Extenders...),
		scheduler.WithParallelism(settings.Parallelism),
	)
	if err != nil {
		end()
		broadcaster.Shutdown()
		return nil, err
	}
	return func(ctx context.Context) {
		defer end()
		defer broadcaster.Shutdown()
		broadcaster.StartRecordingToSink(ctx.Done())
		informers.WaitForCacheSync(ctx.Done())
		if err := s.WaitForHandlersSync(ctx); err != nil {
			return // ctx has ended
		}
		if o.virtual {
			end() // what goes on are metrics, collected every second
		}
		klog.FromContext(ctx).V(2).Info("The scheduler has the state of the cluster")
		s.Run(ctx)
	}, nil
}
