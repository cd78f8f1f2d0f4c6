package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"

	"github.com/sqube/sqube/server/fleet/v1alpha1"
	"github.com/sqube/sqube/sqlstore"
)

// moments finds the next moment at which time itself does something in a cluster that is about to sleep: only what runs in it can do that.
type moments struct {
	store *sqlstore.Store
	now   time.Time
	next  time.Time
}

// nextWake returns when a cluster must wake up, the zero time for never. expires is when the next object expires.
func nextWake(ctx context.Context, store *sqlstore.Store, spec *v1alpha1.ClusterSpec, expires, now time.Time) (time.Time, error) {
	m := &moments{store: store, now: now}
	m.at(expires)
	looks := []func(context.Context) error{m.unconfirmed}
	if spec.Controllers != v1alpha1.ControllersNone {
		looks = append(looks, m.tokens(spec.Controllers == v1alpha1.ControllersAll))
	}
	if spec.Controllers == v1alpha1.ControllersAll {
		looks = append(looks, m.cronJobs, m.jobs, m.requests, m.rollouts, m.nodesAndPods(spec.SimulatedNodes > 0))
	}
	for _, look := range looks {
		if err := look(ctx); err != nil {
			return time.Time{}, err
		}
	}
	if !m.next.IsZero() && m.next.Before(now) {
		m.next = now // what is overdue is tried again
	}
	return m.next, nil
}

// at notes a moment. The zero time is none.
func (m *moments) at(t time.Time) {
	if !t.IsZero() {
		m.next = earlier(m.next, t)
	}
}

// each calls yield with the objects of a resource.
func each[T any](ctx context.Context, m *moments, group, resource string, yield func(*T)) error {
	q := sqlstore.Query{Resource: sqlstore.Resource{Group: group, Name: resource}}
	for {
		page, err := m.store.Page(ctx, q)
		if err != nil {
			return fmt.Errorf("reading %s: %w", resource, err)
		}
		for _, record := range page.Records {
			var object T
			if err := json.Unmarshal(record.Value, &object); err != nil {
				return fmt.Errorf("reading the %s %s: %w", resource, record.Key, err)
			}
			yield(&object)
		}
		if !page.More {
			return nil
		}
		q.After = page.Records[len(page.Records)-1].Key
	}
}

// unconfirmed notes when transactions are taken back that nobody confirms.
func (m *moments) unconfirmed(ctx context.Context) error {
	type waiting struct {
		Due  time.Time `json:"due"`
		Left bool      `json:"left"`
	}
	return each(ctx, m, sqlstore.Unconfirmed.Group, sqlstore.Unconfirmed.Name, func(w *waiting) {
		if !w.Left {
			m.at(w.Due)
		}
	})
}

// legacyTokenPeriod is how long a token of a service account is unused when it is first marked as invalid and then removed.
const legacyTokenPeriod = 365 * 24 * time.Hour

// tokens notes when tokens end, those of bootstrapping nodes only if their cleaner runs.
func (m *moments) tokens(bootstrap bool) func(context.Context) error {
	return func(ctx context.Context) error {
		return each(ctx, m, "", "secrets", func(s *corev1.Secret) {
			switch s.Type {
			case bootstrapapi.SecretTypeBootstrapToken:
				ends, err := time.Parse(time.RFC3339, string(s.Data[bootstrapapi.BootstrapTokenExpirationKey]))
				if err == nil && bootstrap {
					m.at(ends)
				}
			case corev1.SecretTypeServiceAccountToken:
				since := s.CreationTimestamp.Time
				for _, label := range []string{"kubernetes.io/legacy-token-last-used", "kubernetes.io/legacy-token-invalid-since"} {
					if day, err := time.Parse(time.DateOnly, s.Labels[label]); err == nil && day.After(since) {
						since = day
					}
				}
				if ends := since.Add(legacyTokenPeriod + 24*time.Hour); ends.After(m.now) {
					m.at(ends) // what is used by Pods stays, although its time is over
				}
			}
		})
	}
}

// requests notes when CertificateSigningRequests are cleaned up.
func (m *moments) requests(ctx context.Context) error {
	const pending, decided = 24 * time.Hour, time.Hour
	return each(ctx, m, certificatesv1.GroupName, "certificatesigningrequests", func(r *certificatesv1.CertificateSigningRequest) {
		if len(r.Status.Conditions) == 0 {
			m.at(r.CreationTimestamp.Add(pending))
		}
		for _, condition := range r.Status.Conditions {
			m.at(condition.LastUpdateTime.Add(decided))
		}
	})
}

// jobs notes when Jobs are removed or take too long.
func (m *moments) jobs(ctx context.Context) error {
	return each(ctx, m, batchv1.GroupName, "jobs", func(j *batchv1.Job) {
		var finished time.Time
		for _, condition := range j.Status.Conditions {
			if (condition.Type == batchv1.JobComplete || condition.Type == batchv1.JobFailed) && condition.Status == corev1.ConditionTrue {
				finished = condition.LastTransitionTime.Time
			}
		}
		switch {
		case !finished.IsZero():
			if ttl := j.Spec.TTLSecondsAfterFinished; ttl != nil {
				m.at(finished.Add(time.Duration(*ttl) * time.Second))
			}
		case j.Status.StartTime == nil:
		default:
			if limit := j.Spec.ActiveDeadlineSeconds; limit != nil {
				m.at(j.Status.StartTime.Add(time.Duration(*limit) * time.Second))
			}
		}
	})
}
