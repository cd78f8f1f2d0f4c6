package main

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// ignoredFlags are flags of kube-apiserver that do nothing here. They are accepted, so that unit files and manifests written for
// kube-apiserver start sqube too, with a warning that says what to use instead. Values that request something that sqube does not do
// are rejected.
var ignoredFlags = []ignoredFlag{
	{names: "etcd-servers etcd-servers-overrides etcd-prefix",
		reason: "the state is in --datastore; sqube import reads the state of an etcd"},
	{names: "etcd-cafile etcd-certfile etcd-keyfile",
		reason: "--datastore sets TLS to Postgres with sslmode, sslrootcert, sslcert and sslkey"},
	{names: "etcd-compaction-interval",
		reason: "--retention and --compact-interval set how long old versions are kept"},
	{names: "etcd-healthcheck-timeout etcd-readycheck-timeout storage-initialization-timeout",
		reason: "--datastore-timeout limits every wait for the database"},
	{names: "etcd-count-metric-poll-period etcd-db-metric-poll-interval",
		reason: "the metrics sqube_store_… need no polling"},
	{names: "lease-reuse-duration-seconds", reason: "there are no etcd leases; --event-ttl sets how long Events are kept"},
	{names: "storage-backend", only: []string{"", "etcd3"}, reason: "--datastore selects the database"},
	{names: "storage-media-type", only: []string{"application/vnd.kubernetes.protobuf", "application/json", "application/cbor"},
		reason: "objects are stored as JSON, and sent in the format that the client asks for"},
	{names: "watch-cache", boolean: true, reason: "watches and lists have no cache that could be turned off"},
	{names: "watch-cache-sizes default-watch-cache-size", reason: "watches and lists need no such cache; --retention sets how far back a watch can start"},
	{names: "enable-garbage-collector", boolean: true, only: []string{"true"}, reason: "the garbage collector runs in this process; --controllers can turn it off"},
	{names: "enable-logs-handler", boolean: true, only: []string{"false"}, reason: "the log goes to standard error, and no path serves it"},
	{names: "apiserver-count", reason: "servers find each other in the database"},
	{names: "kubelet-timeout", reason: "--request-timeout also limits requests to kubelets"},
	{names: "peer-ca-file peer-advertise-ip peer-advertise-port", only: []string{""},
		reason: "servers do not forward requests to each other"},
	{names: "log-flush-frequency log-text-info-buffer-size log-json-info-buffer-size", reason: "every log line is written at once"},
	{names: "log-text-split-stream log-json-split-stream", boolean: true, only: []string{"false"},
		reason: "the whole log goes to standard error"},
}

// ignoredFlag is one or more flags that do nothing, for the same reason.
type ignoredFlag struct {
	names   string   // separated by spaces
	only    []string // the accepted values; nil for any
	reason  string   // why they do nothing, or what to use instead
	boolean bool
}

// ignoredFlagSet records which of these flags were given.
type ignoredFlagSet struct {
	flags  *pflag.FlagSet
	silent bool // accept all values, without a warning
}

func (c *ignoredFlagSet) value(name string) string { return c.flags.Lookup(name).Value.String() }

// addFlags adds these flags to fs, hidden from help.
func (c *ignoredFlagSet) addFlags(fs *pflag.FlagSet) {
	c.flags = pflag.NewFlagSet("compatibility", pflag.ContinueOnError)
	for _, idle := range ignoredFlags {
		for _, name := range strings.Fields(idle.names) {
			if idle.boolean {
				c.flags.Bool(name, false, idle.reason)
			} else {
				c.flags.String(name, "", idle.reason)
			}
			c.flags.Lookup(name).Hidden = true
		}
	}
	fs.AddFlagSet(c.flags)
}

// check logs a warning about the given flags, once for each reason. It returns an error that names flags with unsupported values.
func (c *ignoredFlagSet) check() error {
	if c.silent {
		return nil
	}
	var errs []error
	for _, idle := range ignoredFlags {
		var given []string
		for _, name := range strings.Fields(idle.names) {
			flag := c.flags.Lookup(name)
			switch {
			case !flag.Changed:
			case idle.only != nil && !slices.Contains(idle.only, flag.Value.String()):
				errs = append(errs, fmt.Errorf("--%s=%s is not supported: %s", name, flag.Value, idle.reason))
			default:
				given = append(given, "--"+name)
			}
		}
		if len(given) > 0 {
			slog.Warn("a flag of kube-apiserver has no effect here", "flag", strings.Join(given, ","), "because", idle.reason)
		}
	}
	return errors.Join(errs...)
}
