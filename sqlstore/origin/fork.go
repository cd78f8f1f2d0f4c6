package origin

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore/history"
	"github.com/sqube/sqube/sqlstore/inspect"
)

// Forked is a copy of a database, with its history, that nothing serves.
type Forked interface {
	dialect.Engine

	// Rewind makes it what it was at a revision: rows that are newer are gone, and those that were live then are live. live has those of them
	// that have left the log, and past is put in the place of the blocks that were current until a later revision.
	Rewind(ctx context.Context, revision int64, live []*dialect.LogRow, past []*dialect.Block) error

	// Exec runs a statement that changes it.
	Exec(ctx context.Context, statement string, args ...any) error
}

// ForkAuthor is who deletes in a fork what is the original's alone.
const ForkAuthor = "system:sqube:fork"

// Fork makes a copy the beginning of another cluster: the original as it was at a moment, with its history up to then, and without what is the
// original's alone. That is its keys and authorities, held Leases, and the Secrets with tokens of bootstrap and of service accounts, of which
// nothing is left.
// It returns the revision with which the other cluster begins. The error is like those of Find.
func Fork(ctx context.Context, c Forked, at At) (revision int64, err error) {
	if at.Revision != 0 || !at.Time.IsZero() {
		revision, kept, _, err := Find(ctx, c, at)
		if err == nil && revision != kept.Revision {
			err = rewind(ctx, c, revision)
		}
		if err != nil {
			return 0, err
		}
	}
	if err := disown(ctx, c); err != nil {
		return 0, err
	}
	kept, err := inspect.Read(ctx, c)
	return kept.Revision, err
}

func rewind(ctx context.Context, c Forked, revision int64) error {
	if err := inspect.Whole(ctx, c, revision); err != nil {
		return err
	}
	var live []*dialect.LogRow
	var past []*dialect.Block
	err := history.Blocks(ctx, c, "until > ? AND first_id <= ?", "first_id", []any{revision, revision}, func(b *dialect.Block) error {
		row, err := history.At(b, revision)
		if err != nil {
			return err
		}
		if row != nil {
			row.ReplacedBy = 0
			live = append(live, row)
		}
		cut, err := history.UpTo(b, revision)
		past = append(past, cut...)
		return err
	})
	if err != nil {
		return err
	}
	return c.Rewind(ctx, revision, live, past)
}

// disown removes what is the original's alone.
func disown(ctx context.Context, c Forked) error {
	tokens, err := tokenKeys(ctx, c)
	if err != nil {
		return err
	}
	var deletes []dialect.Write
	err = dialect.Rows(ctx, c, "WHERE replaced_by IS NULL AND (api_group = 'coordination.k8s.io' OR api_group = '' AND resource = 'secrets' OR api_group = '' AND resource = 'configmaps' AND key = '"+trusted+"')", nil, func(row *dialect.LogRow) error {
		if row.Group != "" && !held(row) || row.Resource == "secrets" && tokens[row.Key] == nil {
			return nil
		}
		w := row.Write
		w.Operation, w.Replaces, w.Value, w.WrittenAt, w.ExpiresAt, w.User = dialect.Delete, row.ID, nil, time.Now().UnixMilli(), 0, ForkAuthor
		w.ImpersonatedUser, w.CredentialID, w.FieldManager, w.Address, w.AuditID = "", "", "", "", ""
		deletes = append(deletes, w)
		return nil
	})
	if err == nil && len(deletes) > 0 {
		_, err = c.CommitAll(ctx, deletes, nil)
	}
	for _, first := range tokens {
		if err == nil {
			err = forget(ctx, c, first)
		}
	}
	// Of the records that are no objects, only those stay that history and transactions consist of.
	for _, table := range []string{"log", "past"} {
		if err == nil {
			err = c.Exec(ctx, "DELETE FROM "+table+" WHERE api_group = '"+dialect.InternalGroup+"' AND resource NOT IN ("+ownRecords+")")
		}
	}
	return err
}

// trusted is the ConfigMap with the authorities that aggregated API servers trust, which the server completes but does not shorten.
const trusted = "kube-system/extension-apiserver-authentication"

var ownRecords = "'" + strings.Join(append(history.Records(), "unconfirmed"), "', '") + "'"

// tokenKeys returns the first version that is kept of each Secret that has ever been one with a token.
func tokenKeys(ctx context.Context, c Forked) (map[string]*dialect.LogRow, error) {
	firsts, found := map[string]*dialect.LogRow{}, map[string]*dialect.LogRow{}
	note := func(row *dialect.LogRow, token bool) {
		if first := firsts[row.Key]; first == nil || row.ID < first.ID {
			firsts[row.Key] = row
		}
		if token || hasToken(row) {
			found[row.Key] = nil
		}
	}
	err := history.Blocks(ctx, c, "past.api_group = '' AND past.resource = 'secrets'", "first_id", nil, func(b *dialect.Block) error {
		versions, err := history.Versions(b)
		for _, row := range versions {
			note(row, false)
		}
		if err != nil && b.Bare == 0 { // it is not known what it was
			note(&dialect.LogRow{ID: b.First, Write: dialect.Write{Resource: b.Resource, Key: b.Key, Namespace: b.Namespace, Name: b.Name}}, true)
			err = nil
		}
		if errors.Is(err, history.ErrForgotten) {
			err = nil
		}
		return err
	})
	if err == nil {
		err = dialect.Rows(ctx, c, "WHERE api_group = '' AND resource = 'secrets' ORDER BY id", nil, func(row *dialect.LogRow) error {
			note(row, false)
			return nil
		})
	}
	for key := range found {
		found[key] = firsts[key]
	}
	return found, err
}

// hasToken reports whether a version of a Secret has a token. Of an encrypted one, only the name is known.
func hasToken(row *dialect.LogRow) bool {
	var secret struct {
		Type string `json:"type"`
	}
	if strings.HasPrefix(row.Key, "kube-system/bootstrap-token-") {
		return true
	}
	_ = json.Unmarshal(row.Value, &secret) // an encrypted one has no type
	return secret.Type == "bootstrap.kubernetes.io/token" || secret.Type == "kubernetes.io/service-account-token"
}

// forget removes all versions of an object that is not live, and puts in their place that they were purged. first is the first of them.
func forget(ctx context.Context, c Forked, first *dialect.LogRow) error {
	const same = " WHERE api_group = ? AND resource = ? AND key = ?"
	args := []any{first.Group, first.Resource, first.Key}
	var until int64
	err := c.Query(ctx, "SELECT max(until) FROM (SELECT until FROM past"+same+" UNION ALL SELECT id FROM log"+same+") AS ends", append(args, args...), func(row dialect.Row) error {
		return row.Scan(&until)
	})
	for _, table := range []string{"log", "past"} {
		if err == nil {
			err = c.Exec(ctx, "DELETE FROM "+table+same, args...)
		}
	}
	if err != nil {
		return err
	}
	purged, err := history.Purged(first, until, &dialect.Write{WrittenAt: time.Now().UnixMilli(), User: ForkAuthor})
	if err != nil {
		return err
	}
	return c.Exec(ctx, dialect.PutBlock, purged.Values()...)
}
