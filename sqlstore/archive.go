package sqlstore

import (
	"errors"
	"time"
)

// ErrArchivedElsewhere is returned by Options.Archived if another process archives the log.
var ErrArchivedElsewhere = errors.New("another process writes the archive")

// archived returns the revision up to which compaction may go, at most target: as far as the removed versions are archived, or as
// far as the process that writes the archive has compacted. If the archive fails, compaction still goes up to surplus, which
// bounds the database.
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
		s.opts.Log.Info("the archive works again", "revision", archived)
	case err != nil && changed:
		s.opts.Log.Warn("writing the archive failed, so versions stay in the database, which grows (--retention-rows limits that)", "error", err)
	}
	if err != nil && surplus > archived {
		s.opts.Log.Error("removing versions that are not archived, since there are more than --retention-rows",
			"from", archived, "to", surplus)
		archived = surplus
	}
	return min(target, archived)
}

// archived records how far the archive is and whether it fails, and reports whether that has changed.
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
