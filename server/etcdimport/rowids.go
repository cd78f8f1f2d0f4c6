package etcdimport

// RowIDs gives each row the revision of its object, or a new one if that is used: a transaction of etcd may change several keys.
type RowIDs struct {
	used map[int64]struct{}
	next int64
}

// NewRowIDs returns the ids of the rows of a cluster whose newest revision is this one. New ones come after it.
func NewRowIDs(newest int64) RowIDs { return RowIDs{map[int64]struct{}{}, newest} }

// Of returns the id of the row of an object with this revision.
func (r *RowIDs) Of(revision int64) int64 {
	if _, ok := r.used[revision]; ok {
		r.next++
		revision = r.next
	}
	r.used[revision] = struct{}{}
	return revision
}
