package mballoc_test

import (
	"testing"

	"extfused/mballoc"
	"extfused/mballoc/simdisk"
)

// BenchmarkFallocate2 is an 8 KiB allocation of fallocate2's pattern, with its share of truncates
// and commits.
func BenchmarkFallocate2(b *testing.B) {
	geo := geo4k(64)
	d := simdisk.New(geo)
	a, err := mballoc.New(geo, d, mballoc.Options{})
	if err != nil {
		b.Fatal(err)
	}
	r := &rig{d: d, a: a, j: &simdisk.Journal{D: d, A: a}}
	f := file{ino: 12}
	truncates := 0
	for b.Loop() {
		if f.len == 256 {
			if err := f.truncate(r); err != nil {
				b.Fatal(err)
			}
			if truncates++; truncates%100 == 0 {
				r.j.Commit(nil)
			}
		}
		if err := f.append(r, 2, 4096); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLastGroup is a search in a file system that is full but for its last group.
func BenchmarkLastGroup(b *testing.B) {
	geo := geo4k(131072)
	d := simdisk.New(geo)
	fullBut(131072, false)(d)
	a, err := mballoc.New(geo, d, mballoc.Options{})
	if err != nil {
		b.Fatal(err)
	}
	tx := d.Begin()
	for b.Loop() {
		res, err := a.Allocate(tx, &mballoc.Request{Ino: 12, Len: 33, HasGoal: true})
		if err != nil {
			b.Fatal(err)
		}
		if err := a.Free(tx, res.Start, res.Len, mballoc.FreeNow); err != nil {
			b.Fatal(err)
		}
	}
}
