package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

// Database says how to connect to a database.
type Database struct {
	DSN      string           // "postgres://…", as libpq and pgx understand it
	Password *PasswordCommand // prints the password; nil if it is in the DSN, the environment or a password file
}

// connectTimeout limits one attempt to connect, unless the DSN sets connect_timeout.
const connectTimeout = 5 * time.Second

// maxConns limits the connections for reads, unless the DSN sets pool_max_conns. There are two more for writes, one for
// notifications, and at times one for vacuum.
const (
	maxConns    = 16
	writerConns = 2
)

// parse returns the configuration of connections. All of them must be made by a pool, dial or openDB, which call its BeforeConnect:
// the password, the password file, the service file and the certificates may change while this process runs.
func (d Database) parse() (*pgxpool.Config, error) {
	config, err := d.read()
	if err != nil {
		return nil, err
	}
	config.BeforeConnect = d.renew
	if !strings.Contains(d.DSN, "pool_max_conns") {
		config.MaxConns = maxConns
	}
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = connectTimeout
	}
	dialer := &net.Dialer{KeepAliveConfig: keepAlive}
	config.ConnConfig.DialFunc = dialer.DialContext
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "sqube"
	}
	return config, nil
}

// read parses the DSN and reads the files that it, or the environment, names.
func (d Database) read() (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(d.DSN)
	if err == nil {
		return config, nil
	}
	// The parser's error masks the password, but repeats a DSN that it could not parse, which may contain it. Of its causes, only those
	// about files repeat nothing.
	if cause := errors.Unwrap(err); cause != nil {
		for _, about := range []string{"unable to ", "failed to read service file", "failed to decode sslkey"} {
			if strings.HasPrefix(cause.Error(), about) {
				return nil, fmt.Errorf("a file that the DSN or the environment names can't be used: %w", cause)
			}
		}
	}
	return nil, errors.New("the DSN is not valid: want postgres://user:password@host:port/database?sslmode=…, with / in the password as %2F")
}

// renew changes the configuration of one new connection to what the files and the password command say now.
func (d Database) renew(ctx context.Context, config *pgx.ConnConfig) error {
	read, err := d.read()
	if err != nil {
		return err
	}
	now := read.ConnConfig
	if now.Database != config.Database {
		return fmt.Errorf("the service file names the database %q now, instead of %q: restart sqube to use another", now.Database, config.Database)
	}
	config.Host, config.Port, config.Fallbacks, config.TLSConfig = now.Host, now.Port, now.Fallbacks, now.TLSConfig
	config.User, config.Password = now.User, now.Password
	if d.Password != nil {
		config.Password, err = d.Password.password(ctx)
	}
	return err
}

// dial opens a connection that belongs to no pool.
func dial(ctx context.Context, config *pgxpool.Config) (*pgx.Conn, error) {
	one := config.ConnConfig.Copy()
	if err := config.BeforeConnect(ctx, one); err != nil {
		return nil, err
	}
	return pgx.ConnectConfig(ctx, one)
}

// openDB returns the database as one of database/sql.
func openDB(config *pgxpool.Config) *sql.DB {
	return stdlib.OpenDB(*config.ConnConfig, stdlib.OptionBeforeConnect(config.BeforeConnect))
}

// findPrimary makes connections go to the host that accepts writes. A standby or former primary would return stale state.
func findPrimary(config *pgxpool.Config) {
	config.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
}

// nameCommand gives the sessions of a command a name that differs from a server's, and returns the server's.
func nameCommand(config *pgxpool.Config) (server string) {
	server = config.ConnConfig.RuntimeParams["application_name"]
	config.ConnConfig.RuntimeParams["application_name"] = server + "-command"
	return server
}
