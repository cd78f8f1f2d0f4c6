package history

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// A delta turns one text into a similar one. It is a sequence of steps, each of which adds bytes, skips bytes of the old text, and
// copies the next ones:
//
//	uvarint(n) n bytes uvarint(skipped) uvarint(copied)
//
// Versions of an object have their fields in the same order, so nothing ever has to be copied from further back.

const (
	// anchorBytes is how many bytes have to agree for the texts to be in step again.
	anchorBytes = 16
	// anchorStep is how far apart the places are that are tried, if none is after a comma.
	anchorStep = 64
	// maxAnchors limits the tries after a difference. If none of them is found, the rest of the text is new.
	maxAnchors = 200
)

func appendDelta(to, old, now []byte) []byte {
	for {
		same := commonPrefix(old, now)
		if same == len(now) {
			return appendStep(to, nil, 0, same)
		}
		if same > 0 {
			to = appendStep(to, nil, 0, same)
			old, now = old[same:], now[same:]
		}
		added, skipped, found := resume(old, now)
		if !found {
			return appendStep(to, now, len(old), 0)
		}
		to = appendStep(to, now[:added], skipped, 0)
		old, now = old[skipped:], now[added:]
	}
}

func appendStep(to, added []byte, skipped, copied int) []byte {
	to = binary.AppendUvarint(to, uint64(len(added)))
	to = append(to, added...)
	to = binary.AppendUvarint(to, uint64(skipped))
	return binary.AppendUvarint(to, uint64(copied))
}

// resume returns how much of each text there is before they agree again.
func resume(old, now []byte) (added, skipped int, found bool) {
	at := 0
	for range maxAnchors {
		if at+anchorBytes > len(now) {
			break
		}
		if i := bytes.Index(old, now[at:at+anchorBytes]); i >= 0 {
			for at > 0 && i > 0 && old[i-1] == now[at-1] {
				at, i = at-1, i-1
			}
			return at, i, true
		}
		next := bytes.IndexByte(now[at+1:min(len(now), at+1+anchorStep)], ',')
		if next < 0 {
			next = anchorStep
		}
		at += 1 + next
	}
	// The end of a text is shorter than an anchor, or the texts differ in all of them.
	same := commonSuffix(old, now)
	return len(now) - same, len(old) - same, same > 0
}

func commonPrefix(a, b []byte) int {
	n, i := min(len(a), len(b)), 0
	for i+8 <= n && binary.LittleEndian.Uint64(a[i:]) == binary.LittleEndian.Uint64(b[i:]) {
		i += 8
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}

func commonSuffix(a, b []byte) int {
	n, i := min(len(a), len(b)), 0
	for i < n && a[len(a)-1-i] == b[len(b)-1-i] {
		i++
	}
	return i
}

var errDelta = errors.New("a block of history is damaged: a difference does not fit its text")

// applyDelta appends the text that a delta makes of old.
func applyDelta(to, old, delta []byte) ([]byte, error) {
	for len(delta) > 0 {
		added, rest, ok := cutBytes(delta)
		skipped, n := binary.Uvarint(rest)
		copied, m := binary.Uvarint(rest[max(n, 0):])
		if !ok || n <= 0 || m <= 0 || skipped > uint64(len(old)) || copied > uint64(len(old))-skipped {
			return nil, errDelta
		}
		to = append(append(to, added...), old[skipped:skipped+copied]...)
		old, delta = old[skipped+copied:], rest[n+m:]
	}
	return to, nil
}

// cutBytes returns bytes that follow their length, and what follows them.
func cutBytes(data []byte) (cut, rest []byte, ok bool) {
	length, n := binary.Uvarint(data)
	if n <= 0 || length > uint64(len(data)-n) {
		return nil, nil, false
	}
	end := n + int(length)
	return data[n:end:end], data[end:], true
}
