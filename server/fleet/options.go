package fleet

import (
	"github.com/sqube/sqube/server"
	"github.com/sqube/sqube/server/fleet/v1alpha1"
	"github.com/sqube/sqube/sqlstore"
)

// optionsOf returns the options of a cluster's server.
func (f *Fleet) optionsOf(o *v1alpha1.Cluster, r *running) (*server.Options, sqlstore.Options, error) {
	options, stored, err := f.config.Options(o)
	if err != nil {
		return nil, stored, err
	}
	ca, err := f.host.ServingCA()
	if err != nil {
		return nil, stored, err
	}
	options.Hosted = &server.Hosted{
		Connections: f.host.Connections(), URL: o.Status.URL, CA: ca, Sealer: f.sealer, Audit: f.host.AuditOf(o.Namespace + "/" + o.Name), Answered: r.answered,
	}
	options.Access.Authentication.ServiceAccounts.Issuers = []string{o.Status.URL}
	if origin := o.Spec.From; origin != nil {
		options.CopyOf, options.Outbound = "a cluster", o.Spec.Outbound
	}
	if o.Spec.History != nil {
		stored.History = o.Spec.History.Duration
	}
	if o.Spec.Retention != nil {
		stored.Retention = o.Spec.Retention.Duration
	}
	limitMemory(&stored, o.Spec.Limits)
	limitHistory(&stored, o.Spec.Limits)
	return options, stored, nil
}
