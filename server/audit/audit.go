// Package audit records requests as kube-apiserver does: a policy selects what is written to a file, to a webhook, or to both
// (https://kubernetes.io/docs/tasks/debug/debug-cluster/audit/).
package audit

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"

	"github.com/spf13/pflag"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/egressselector"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/util/webhook"
)

// Options hold --audit-policy-file and the flags that begin with --audit-log and --audit-webhook. Make them with
// [NewOptions].
type Options struct {
	kube *options.AuditOptions
}

// NewOptions returns the defaults of kube-apiserver: nothing is recorded.
func NewOptions() *Options { return &Options{kube: options.NewAuditOptions()} }

// AddFlags adds the flags to fs under kube-apiserver's names.
func (o *Options) AddFlags(fs *pflag.FlagSet) { o.kube.AddFlags(fs) }

// Validate returns all problems with the flags as one error, which names the flags. It reads the policy and the webhook's kubeconfig.
func (o *Options) Validate() error {
	errs := []error{
		about("--audit-log-*", o.kube.LogOptions.Validate()...),
		about("--audit-webhook-*", o.kube.WebhookOptions.Validate()...),
	}
	if path := o.kube.PolicyFile; path != "" {
		if _, err := policy.LoadPolicyFromFile(path); err != nil {
			errs = append(errs, about("--audit-policy-file", err))
		}
	}
	if path := o.kube.WebhookOptions.ConfigFile; path != "" {
		if _, err := webhook.LoadKubeconfig(path, nil); err != nil {
			errs = append(errs, about("--audit-webhook-config-file", err))
		}
	}
	return errors.Join(errs...)
}

// about joins errors, and adds the flag as a prefix to those that name none.
func about(flag string, errs ...error) error {
	for i, err := range errs {
		if !strings.HasPrefix(err.Error(), "--") {
			errs[i] = fmt.Errorf("%s: %w", flag, err)
		}
	}
	return errors.Join(errs...)
}

// Log records requests. Both fields are nil if none are recorded.
type Log struct {
	// Backend writes the records.
	Backend audit.Backend
	// Policy decides what to record about a request.
	Policy audit.PolicyRuleEvaluator

	closing chan struct{} // nil if it is a part of another one
}

// Of returns the part of the log that is about a hosted cluster, which an annotation of each record names. It is started and closed with l.
func (l *Log) Of(cluster string) *Log {
	part := &Log{Policy: l.Policy}
	if l.Backend != nil {
		part.Backend = annotated{l.Backend, cluster}
	}
	return part
}

// ClusterAnnotation is the annotation of records that names a hosted cluster: NAMESPACE/NAME.
const ClusterAnnotation = "fleet.sqube.io/cluster"

// annotated adds the annotation to the records.
type annotated struct {
	audit.Backend
	cluster string
}

// ProcessEvents implements audit.Backend.
func (a annotated) ProcessEvents(events ...*auditinternal.Event) bool {
	for i, event := range events {
		changed := *event // others may have it
		changed.Annotations = maps.Clone(event.Annotations)
		if changed.Annotations == nil {
			changed.Annotations = map[string]string{}
		}
		changed.Annotations[ClusterAnnotation] = a.cluster
		events[i] = &changed
	}
	return a.Backend.ProcessEvents(events...)
}

// New creates the log that the options describe. The file of --audit-log-path is created, or appended to. The webhook is reached
// through egress, unless that is nil. Errors name the flags.
func New(o *Options, egress *egressselector.EgressSelector) (*Log, error) {
	config := server.Config{EgressSelector: egress}
	if err := o.kube.ApplyTo(&config); err != nil {
		return nil, about("--audit-log-path, --audit-webhook-config-file", err)
	}
	if config.AuditPolicyRuleEvaluator == nil && o.kube.LogOptions.Path+o.kube.WebhookOptions.ConfigFile != "" {
		slog.Warn("no request is audited: --audit-policy-file must select the requests, and what to record about them")
	}
	return &Log{Backend: config.AuditBackend, Policy: config.AuditPolicyRuleEvaluator, closing: make(chan struct{})}, nil
}

// Start starts writing. It must be called once, before the first request.
func (l *Log) Start() error {
	if l.Backend == nil || l.closing == nil {
		return nil
	}
	return l.Backend.Run(l.closing)
}

// Close returns when all records have been written. It must be called once, after Start and after the last request.
func (l *Log) Close() {
	if l.closing == nil {
		return
	}
	close(l.closing)
	if l.Backend != nil {
		l.Backend.Shutdown()
	}
}
