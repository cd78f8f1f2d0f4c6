package faults

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// Step is one operation on the files of a folder, or a mark.
type Step struct {
	kind   stepKind
	name   string // of the file in the folder; "" is the folder itself
	offset int64  // of a write; the size of a truncation or an extension
	data   []byte
	// Mark is the argument of Recorder.Mark.
	Mark any
}

type stepKind int

const (
	stepMark stepKind = iota
	stepWrite
	stepTruncate
	stepExtend // by zeros, unless the file is longer
	stepSync
	stepRemove
)

// String describes the step in error messages.
func (s *Step) String() string {
	switch s.kind {
	case stepWrite:
		return fmt.Sprintf("write %s at %d, %d bytes", s.name, s.offset, len(s.data))
	case stepTruncate:
		return fmt.Sprintf("truncate %s to %d bytes", s.name, s.offset)
	case stepExtend:
		return fmt.Sprintf("extend %s to %d bytes", s.name, s.offset)
	case stepSync:
		return fmt.Sprintf("sync %s", cmp.Or(s.name, "the folder"))
	case stepRemove:
		return "remove " + s.name
	}
	return fmt.Sprint(s.Mark)
}

// IsSync reports whether the step makes something durable.
func (s *Step) IsSync() bool { return s.kind == stepSync }

// sector is what a disk writes atomically.
const sector = 512

// PowerCut is a folder as left by a power cut. What was synced is there, and any part of the rest may be: later writes without
// earlier ones, some sectors of a write, a removed file. A new file has a name only once the folder was synced.
type PowerCut struct{ files map[string]*cutFile }

type cutFile struct {
	content []byte   // on the disk
	pending []Step   // since the last sync
	named   bool     // on the disk
	removed bool     // but not yet on the disk
	before  *cutFile // had the name before, if its removal is not on the disk
}

// NewPowerCut returns an empty folder.
func NewPowerCut() *PowerCut { return &PowerCut{map[string]*cutFile{}} }

// Do applies a step.
func (p *PowerCut) Do(s *Step) {
	switch {
	case s.kind == stepMark:
		return
	case s.kind == stepSync && s.name == "":
		p.syncNames()
		return
	}
	f := p.files[s.name]
	if f == nil || f.removed && s.kind != stepRemove {
		f = &cutFile{before: f}
		p.files[s.name] = f
	}
	switch s.kind {
	case stepRemove:
		f.removed = true
	case stepSync:
		for i := range f.pending {
			f.content = f.pending[i].apply(f.content)
		}
		f.pending = nil
	default:
		f.pending = append(f.pending, *s)
	}
}

func (p *PowerCut) syncNames() {
	for name, f := range p.files {
		if f.removed {
			delete(p.files, name)
		}
		f.named, f.before = true, nil
	}
}

// apply applies a write, a truncation or an extension.
func (s *Step) apply(content []byte) []byte {
	end := s.offset + int64(len(s.data))
	if missing := end - int64(len(content)); missing > 0 {
		content = append(content, make([]byte, missing)...)
	}
	if s.kind == stepTruncate {
		return content[:s.offset]
	}
	copy(content[s.offset:], s.data)
	return content
}

// Write creates the files in an empty folder. Without random, only what was synced is there; with it, each unsynced operation
// may be.
func (p *PowerCut) Write(folder string, random *rand.Rand) (err error) {
	chance := func() bool { return random != nil && random.IntN(2) == 0 }
	for name, f := range p.files {
		if !f.named && !chance() {
			f = f.before
		}
		if f == nil || f.removed && chance() {
			continue
		}
		content := append([]byte{}, f.content...)
		for i := range f.pending {
			for _, part := range f.pending[i].parts() {
				if chance() {
					content = part.apply(content)
				}
			}
		}
		err = errors.Join(err, os.WriteFile(filepath.Join(folder, name), content, 0o600))
	}
	return err
}

// parts splits a write into sectors.
func (s *Step) parts() (parts []Step) {
	if s.kind != stepWrite {
		return []Step{*s}
	}
	for from := int64(0); from < int64(len(s.data)); {
		to := min(int64(len(s.data)), (s.offset+from)/sector*sector+sector-s.offset)
		parts = append(parts, Step{kind: stepWrite, offset: s.offset + from, data: s.data[from:to]})
		from = to
	}
	return parts
}
