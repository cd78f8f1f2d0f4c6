package logbackup

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// generation is a snapshot and the rows after it.
type generation struct {
	name     string // of its folder
	number   int
	snapshot *File // nil while it is being written
	segments []segment
	followed *time.Duration // for how long the place had been followed when it began; nil if that has not been read
}

// segment is a file of rows.
type segment struct {
	File
	after, upTo int64
	level       int // how often its files were merged
}

var (
	generationName = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}-([0-9]{8})-[a-z0-9]{6}$`)
	segmentName    = regexp.MustCompile(`^([0-9]{20})-([0-9]{20})\.([0-9])\.jsonl\.gz$`)
)

const snapshotName = "snapshot.jsonl.gz"

func isBackup(name string) bool {
	folder, file := path.Split(name)
	return generationName.MatchString(path.Clean(folder)) && (file == snapshotName || segmentName.MatchString(file))
}

// newGeneration returns a generation with a unique name that contains its day. Generations are ordered by number, since clocks may be set
// back.
func newGeneration(number int, began time.Time) *generation {
	day := began.UTC().Format(time.DateOnly)
	return &generation{name: fmt.Sprintf("%s-%08d-%s", day, number, strings.ToLower(rand.Text()[:6])), number: number}
}

func (g *generation) snapshotPath() string { return path.Join(g.name, snapshotName) }

func (g *generation) segmentPath(after, upTo int64, level int) string {
	return path.Join(g.name, fmt.Sprintf("%020d-%020d.%d.jsonl.gz", after, upTo, level))
}

// generations groups the files of a backup, including generations without a snapshot. It ignores files with other names.
func generations(files []File) []*generation {
	byName := map[string]*generation{}
	for _, file := range files {
		folder, name := path.Split(file.Name)
		folder = path.Clean(folder)
		match := generationName.FindStringSubmatch(folder)
		if match == nil {
			continue
		}
		g := byName[folder]
		if g == nil {
			g = &generation{name: folder, number: int(number(match[1]))}
			byName[folder] = g
		}
		if match := segmentName.FindStringSubmatch(name); match != nil {
			g.segments = append(g.segments, segment{file, number(match[1]), number(match[2]), int(number(match[3]))})
		} else if name == snapshotName {
			g.snapshot = &file
		}
	}
	var all []*generation
	for _, g := range byName {
		slices.SortFunc(g.segments, func(a, b segment) int {
			return cmp.Or(cmp.Compare(a.after, b.after), cmp.Compare(b.upTo, a.upTo), cmp.Compare(b.level, a.level))
		})
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b *generation) int {
		return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(a.name, b.name))
	})
	return all
}

// whole returns the generations that have a snapshot.
func whole(all []*generation) []*generation {
	return slices.DeleteFunc(slices.Clone(all), func(g *generation) bool { return g.snapshot == nil })
}

// chain returns the segments that continue each other from the snapshot's revision on, which may overlap, those that others cover, and
// those after a gap.
func (g *generation) chain(from int64) (chain, covered, beyond []segment) {
	at := from
	for _, s := range g.segments {
		switch {
		case s.upTo <= at:
			covered = append(covered, s)
		case s.after <= at:
			chain, at = append(chain, s), s.upTo
		default:
			beyond = append(beyond, s)
		}
	}
	return chain, covered, beyond
}

func number(digits string) int64 {
	n, _ := strconv.ParseInt(digits, 10, 64) // the pattern allows only digits; too many give the highest number
	return n
}
