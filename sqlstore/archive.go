package sqlstore

import (
	"errors"
	"time"
)

// ErrArchivedElsewhere says that another process archives the log.
var ErrArchivedElsewhere = errors.New("another process writes the archive")

// archived returns up to which revision compaction may go that wants to go to target: as far as the archive has what is
// removed, or another process, which looks after that, has gone. While the archive fails, surplus goes all the same: it
// bounds what the database may hold.
func (s *Store) archived(target, surplus int64) (upTo int64) {
	if s.opts.Archived == nil {
		return target
	}
	archived, err := s.opts.Archived()
	if errors.Is(err, ErrArchivedElsewhere) {
		s.size.archived(0, false)
		return min(target, s.Stats().Compacted)
	}
	changed := s.size.archived(archived, err != nil)
	switch {
	case err == nil && changed:
		s.opts.Log.Info("the archive takes versions again", "revision", archived)
	case err != nil && changed:
		s.opts.Log.Warn("the archive does not take versions, so they stay in the database, which grows (--retention-rows bounds that)", "error", err)
	}
	if err != nil && surplus > archived {
		s.opts.Log.Error("versions are removed that the archive does not have, since there are more than --retention-rows",
			"from", archived, "to", surplus)
		archived = surplus
	}
	return min(target, archived)
}

// archived notes how far the archive is and whether it fails, and returns whether that has changed.
func (z *size) archived(revision int64, fails bool) (changed bool) {
	z.update(func() {
		z.stats.Archived = revision
		changed = fails == z.failing.IsZero()
		switch {
		case !fails:
			z.failing = time.Time{}
		case changed:
			z.failing = time.Now()
		}
	})
	return changed
}
