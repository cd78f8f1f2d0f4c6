package sqlite

import (
	"encoding/binary"
	"fmt"

	"github.com/sqube/sqube/dialect"
)

// The kinds of pages, as the pointer map of a file says (https://www.sqlite.org/fileformat2.html).
const (
	rootPage, freePage, treePage = 1, 2, 5
	mapEntry                     = 5       // bytes of a page's entry in the pointer map
	lockByte                     = 1 << 30 // the page at this offset is never used
)

// The kinds of pages of trees.
const (
	innerIndex, innerTable, leafIndex, leafTable = 2, 5, 10, 13
)

// pages are pages of a file with auto_vacuum, in one transaction.
type pages struct {
	size, usable int // bytes of a page, and of what SQLite uses of it
	trunks       map[uint32]bool
	data         map[uint32][]byte
	changed      map[uint32]bool
	// read reads a page that is not in data.
	read func(uint32) ([]byte, error)
}

func (p *pages) page(n uint32) ([]byte, error) {
	if data, ok := p.data[n]; ok {
		return data, nil
	}
	data, err := p.read(n)
	if err == nil && len(data) != p.size {
		err = wrong(n)
	}
	if err != nil {
		return nil, err
	}
	p.data[n] = data
	return data, nil
}

func wrong(n uint32) error {
	return fmt.Errorf("%w: page %d is not as it should be", dialect.ErrCorrupt, n)
}

// begin reads from the first page what is needed for all others.
func (p *pages) begin() error {
	first, err := p.page(1)
	if err != nil {
		return err
	}
	p.usable = p.size - int(first[20])
	p.trunks = map[uint32]bool{}
	for n := binary.BigEndian.Uint32(first[32:]); n != 0; {
		if p.trunks[n] {
			return wrong(n)
		}
		p.trunks[n] = true
		trunk, err := p.page(n)
		if err != nil {
			return err
		}
		n = binary.BigEndian.Uint32(trunk)
	}
	return nil
}

// erase fills the part of page n that holds nothing with zeros, and the end of the values that begin on it.
func (p *pages) erase(n uint32) error {
	kind := byte(rootPage)
	if n > 1 {
		perMap := uint32(p.usable/mapEntry + 1)
		of := (n-2)/perMap*perMap + 2
		lock := uint32(lockByte/p.size + 1)
		if of == lock {
			of++
		}
		if n == of || n == lock {
			return nil
		}
		pointers, err := p.page(of)
		if err != nil {
			return err
		}
		if n < of {
			return wrong(n)
		}
		kind = pointers[mapEntry*(n-of-1)]
	}
	data, err := p.page(n)
	if err != nil {
		return err
	}
	switch {
	case kind == rootPage || kind == treePage:
		return p.eraseTree(n, data)
	case kind == freePage && !p.trunks[n]:
		return p.zero(n, 0, p.size)
	case kind == freePage:
		return p.zero(n, 8+4*int(binary.BigEndian.Uint32(data[4:])), p.size)
	}
	return nil // the middle of a value
}

// zero fills the bytes of page n from one offset to another with zeros.
func (p *pages) zero(n uint32, from, to int) error {
	if from < 0 || from > to || to > p.size {
		return wrong(n)
	}
	for i, b := range p.data[n][from:to] {
		if b != 0 {
			clear(p.data[n][from+i : to])
			p.changed[n] = true
			break
		}
	}
	return nil
}

// eraseTree erases what is free on page n of a table or an index: between the cells' pointers and the cells, and where a cell was.
func (p *pages) eraseTree(n uint32, data []byte) error {
	at := 0
	if n == 1 {
		at = 100
	}
	number := func(offset int) int { return int(binary.BigEndian.Uint16(data[offset:])) }
	pointers := at + 8
	kind := data[at]
	switch kind {
	case innerIndex, innerTable:
		pointers += 4
	case leafIndex, leafTable:
	default:
		return wrong(n)
	}
	cells := number(at + 3)
	content := (number(at+5)-1)&0xffff + 1 // 0 is 65536
	if pointers+2*cells > content || content > p.usable {
		return wrong(n)
	}
	if err := p.zero(n, pointers+2*cells, content); err != nil {
		return err
	}
	for free, last := number(at+1), content-1; free != 0; {
		if free <= last || free+4 > p.usable || free+number(free+2) > p.usable {
			return wrong(n)
		}
		last = free + number(free+2) - 1
		if err := p.zero(n, free+4, last+1); err != nil {
			return err
		}
		free = number(free)
	}
	for i := range cells {
		if err := p.eraseEnd(n, kind, data, number(pointers+2*i)); err != nil {
			return err
		}
	}
	return nil
}

// eraseEnd erases what follows the value of a cell on its last page, if the value takes further pages.
func (p *pages) eraseEnd(n uint32, kind byte, data []byte, cell int) error {
	most, least := (p.usable-12)*64/255-23, (p.usable-12)*32/255-23
	switch kind {
	case innerTable:
		return nil // it has no values
	case innerIndex:
		cell += 4
	case leafTable:
		most = p.usable - 35
	}
	length, cell := varint(data, cell)
	if kind == leafTable {
		_, cell = varint(data, cell) // the row's id
	}
	if length <= uint64(most) {
		return nil
	}
	each := p.usable - 4
	here := least + int((length-uint64(least))%uint64(each))
	if here > most {
		here = least
	}
	left := length - uint64(here)
	if cell += here; cell+4 > p.usable {
		return wrong(n)
	}
	for next := data[cell:]; ; {
		n := binary.BigEndian.Uint32(next)
		page, err := p.page(n)
		if err != nil {
			return err
		}
		if left <= uint64(each) {
			if binary.BigEndian.Uint32(page) != 0 {
				return wrong(n)
			}
			return p.zero(n, 4+int(left), p.size)
		}
		next, left = page, left-uint64(each)
	}
}

// varint returns the number at an offset, and the offset after it. Where the page ends there is none, and the offset is beyond the page.
func varint(data []byte, at int) (n uint64, next int) {
	for i := range 9 {
		if at+i >= len(data) {
			return 0, len(data) + 1
		}
		b := data[at+i]
		if i == 8 {
			return n<<8 | uint64(b), at + 9
		}
		if n = n<<7 | uint64(b&0x7f); b < 0x80 {
			return n, at + i + 1
		}
	}
	return n, at + 9
}
