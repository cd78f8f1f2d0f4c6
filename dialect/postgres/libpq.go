package postgres

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
)

// target is a database in the form that Postgres' programs take.
type target struct {
	address  string   // a URL of user, hosts and database, without secrets
	env      []string // visible only to the user running them
	settings []string // of the service in address: name=value
}

// service is the name of the settings in the service file.
const service = "sqube"

var errNoURL = errors.New("the DSN is not a URL such as postgres://user:password@host:port/database")

// newTarget parses a DSN. A parameter that neither libpq nor pgx knows is a setting of the session, as in pgx.
func newTarget(dsn string) (*target, error) {
	u, query, err := parseURL(dsn)
	if err != nil {
		return nil, err
	}
	t := &target{}
	password := query.Get("password")
	if u.User != nil {
		if given, ok := u.User.Password(); ok && password == "" {
			password = given
		}
		u.User = url.User(u.User.Username())
	}
	if password != "" {
		t.env = append(t.env, "PGPASSWORD="+password)
	}
	var options []string
	for _, name := range slices.Sorted(maps.Keys(query)) {
		value := query.Get(name)
		if name == "database" {
			name = "dbname"
		}
		switch {
		case name == "password", strings.HasPrefix(name, "pool_"), slices.Contains(pgxOnly, name):
		case strings.ContainsAny(value, "\r\n") || strings.TrimSpace(value) != value:
			return nil, fmt.Errorf("%s in the DSN must be one line without surrounding space", name)
		case name == "options":
			options = append(options, value)
		case name == "service", name == "servicefile":
			return nil, errors.New("Postgres' programs can't use this DSN: name host, user and database in it instead of a service")
		case slices.Contains(libpqKeywords, name):
			t.settings = append(t.settings, name+"="+value)
		default:
			options = append(options, "-c "+name+"="+strings.NewReplacer(`\`, `\\`, " ", `\ `).Replace(value))
		}
	}
	if len(options) > 0 {
		t.settings = append(t.settings, "options="+strings.Join(options, " "))
	}
	u.RawQuery, u.Fragment = "service="+service, ""
	t.address = u.String()
	return t, nil
}

// findPrimary makes programs connect to the host that accepts writes.
func (t *target) findPrimary() {
	const name = "target_session_attrs="
	t.settings = slices.DeleteFunc(t.settings, func(s string) bool { return strings.HasPrefix(s, name) })
	t.settings = append(t.settings, name+"read-write")
}

// parseURL parses a DSN and its parameters, in which + is not a space, as in libpq.
func parseURL(dsn string) (*url.URL, url.Values, error) {
	u, err := url.Parse(dsn)
	if err != nil || u.Scheme == "" {
		return nil, nil, errNoURL
	}
	query, err := url.ParseQuery(strings.ReplaceAll(u.RawQuery, "+", "%2B"))
	if err != nil {
		return nil, nil, errNoURL
	}
	return u, query, nil
}

// The parameters of a DSN that only pgx knows, and those of libpq (https://www.postgresql.org/docs/current/libpq-connect.html).
var (
	pgxOnly       = []string{"default_query_exec_mode", "statement_cache_capacity", "description_cache_capacity", "krbspn"}
	libpqKeywords = strings.Fields(`host hostaddr port dbname user passfile require_auth channel_binding connect_timeout client_encoding
application_name fallback_application_name keepalives keepalives_idle keepalives_interval keepalives_count tcp_user_timeout
replication gssencmode sslmode requiressl sslnegotiation sslcompression sslcert sslkey sslpassword sslcertmode sslrootcert
sslcrl sslcrldir sslsni requirepeer ssl_min_protocol_version ssl_max_protocol_version min_protocol_version
max_protocol_version krbsrvname gsslib gssdelegation scram_client_key scram_server_key target_session_attrs
load_balance_hosts oauth_issuer oauth_client_id oauth_client_secret oauth_scope`)
)

// serviceFile returns a file without a name for PGSERVICEFILE, so that it disappears with this process
// (https://www.postgresql.org/docs/current/libpq-pgservice.html).
func (t *target) serviceFile() (_ *os.File, err error) {
	f, err := os.CreateTemp("", "sqube-service-") // of mode 0600
	if err != nil {
		return nil, err
	}
	err = os.Remove(f.Name())
	if err == nil {
		_, err = f.WriteString("[" + service + "]\n" + strings.Join(t.settings, "\n") + "\n")
	}
	if err == nil {
		_, err = f.Seek(0, 0)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
