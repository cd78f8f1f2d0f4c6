package main

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sqube/sqube/cmd/sqube/internal/datastore"
	"github.com/sqube/sqube/server/flagcheck"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/history"
)

const (
	defaultHistory = 7 * 24 * time.Hour
	// maxHistory is the default of --history-bytes on a large disk, and inMemoryHistory that of a database in memory.
	maxHistory      = 1 << 30
	inMemoryHistory = 32 << 20
	// defaultRules stands for history.DefaultRules.
	defaultRules = "default"
	// historyShare is the part of the free space that history may take by default.
	historyShare = 8
)

// historyOptions are the flags of the history that is kept in the database.
type historyOptions struct {
	depth time.Duration
	bytes resource.QuantityValue
	thin  []string
}

func (o *historyOptions) addFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&o.depth, "history", defaultHistory, "How long versions are kept, in packed form, after --retention: for changes, undo, sqube history and show, and for lists and gets at their resourceVersion. 0 keeps none, and removes those that were kept. Set the same on all servers of a database.")
	fs.Var(&o.bytes, "history-bytes", "Space in the database that they take at most, such as 1Gi. Then those who wrote most give up their oldest values first. If 0, an eighth of the free space when the server starts, and at most 1Gi.")
	fs.StringSliceVar(&o.thin, "history-thin", []string{defaultRules}, "Fields whose changes alone are not kept, as RESOURCE.GROUP:FIELD. Only numbers and times are left out, and only if nothing else has changed. 'default' stands for "+strings.Join(history.DefaultRules, ", ")+". With an empty value, all versions are kept.")
}

func (o *historyOptions) complete(options *sqlstore.Options) error {
	var errs flagcheck.Problems
	errs.Unless(o.depth >= 0, "--history %s must not be negative", o.depth)
	errs.Unless(o.bytes.Sign() >= 0, "--history-bytes %s must not be negative", o.bytes.String())
	var err error
	rules := o.thin
	if i := slices.Index(rules, defaultRules); i >= 0 {
		rules = slices.Replace(slices.Clone(rules), i, i+1, history.DefaultRules...)
	}
	options.HistoryThin, err = history.ParseRules(rules)
	errs.Unless(err == nil, "--history-thin: %w", err)
	options.History = o.depth
	return errors.Join(errs...)
}

// limit returns how many bytes of history the database may have. How much space is free for a database of another server is not known.
func (o *historyOptions) limit(d datastore.Datastore, inMemory bool) int64 {
	switch {
	case !o.bytes.IsZero():
		return o.bytes.Value()
	case inMemory:
		return inMemoryHistory
	case d.Shared():
		return maxHistory
	}
	free, err := freeSpace(filepath.Dir(d.Path))
	if err != nil {
		return maxHistory
	}
	return max(1, min(free/historyShare, maxHistory))
}
