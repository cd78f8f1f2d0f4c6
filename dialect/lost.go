package dialect

import "fmt"

// LostResource is the resource, which does not exist, of the blocks that stand for lost revisions. Revisions that the counter has jumped over may
// have been seen with contents that are lost, so history has the state at none of them. The table past records them as a block without
// versions and without a key.
const LostResource = "lost"

// InternalGroup is the group of records that are no objects of the API.
const InternalGroup = "sqube.io"

// IsLost reports whether a block stands for lost revisions.
func (b *Block) IsLost() bool {
	return b.Group == InternalGroup && b.Resource == LostResource && b.Key == ""
}

// Lost is the condition that a block stands for lost revisions, and NotLost that it does not.
const (
	Lost    = "api_group = '" + InternalGroup + "' AND resource = '" + LostResource + "' AND key = ''"
	NotLost = "NOT (" + Lost + ")"
)

// RecordLost returns a statement, without its FROM, that records lost revisions: from first until another one, by expressions, and the time of
// both. empty is a value of the type of the column data.
func RecordLost(first, until, at, empty string) string {
	return fmt.Sprintf(`INSERT INTO past (first_id, until, first_at, until_at, bytes, api_group, resource, key, namespace, name, writers, versions, data)
SELECT %s, %s, %[3]s, %[3]s, 0, '%[5]s', '%[6]s', '', '', '', '[]', '[]', %[4]s`, first, until, at, empty, InternalGroup, LostResource)
}

// WasLost is the condition that a revision, which both of its parameters are, is lost.
const WasLost = "EXISTS (SELECT 1 FROM past WHERE " + Lost + " AND first_id <= ? AND until > ?)"
