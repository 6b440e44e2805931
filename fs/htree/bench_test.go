package htree

import (
	"fmt"
	"testing"

	"extfused/fs/ondisk"
)

// plainStore is memStore without the rules.
type plainStore struct {
	size   int
	blocks [][]byte
}

func (s *plainStore) Get(l ondisk.LBlock, write bool) ([]byte, error) { return s.blocks[l], nil }
func (s *plainStore) Dirty(ondisk.LBlock) error                       { return nil }
func (s *plainStore) New() (ondisk.LBlock, []byte, error) {
	s.blocks = append(s.blocks, make([]byte, s.size))
	return ondisk.LBlock(len(s.blocks) - 1), s.blocks[len(s.blocks)-1], nil
}

func benchDir(b *testing.B, names []string) *Dir {
	d := &Dir{Params: defaults(4096), Store: &plainStore{size: 4096}, Ino: 12}
	if err := d.InitEmpty(12, 2); err != nil {
		b.Fatal(err)
	}
	for i, n := range names {
		if err := d.Insert(n, ondisk.InodeNumber(i+20), 1); err != nil {
			b.Fatal(err)
		}
	}
	return d
}

func benchNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("file-number-%06d.c", i)
	}
	return names
}

func BenchmarkInsert(b *testing.B) {
	for _, n := range []int{50, 20000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			names := benchNames(n)
			for b.Loop() {
				benchDir(b, names)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/name")
		})
	}
}

func BenchmarkLookup(b *testing.B) {
	for _, n := range []int{20, 100, 20000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			names := benchNames(n)
			d := benchDir(b, names)
			i := 0
			for b.Loop() {
				if _, _, err := d.Lookup(names[i%n]); err != nil {
					b.Fatal(err)
				}
				i += 7919
			}
		})
	}
}

func BenchmarkReadDir(b *testing.B) {
	for _, n := range []int{50, 20000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			d := benchDir(b, benchNames(n))
			for b.Loop() {
				seen := 0
				for cookie, room := uint64(0), true; room; {
					k := 0
					room = false
					if err := d.ReadDir(cookie, func(e Entry) bool {
						if k++; k > 30 { // about what a READDIRPLUS of 4 KiB takes
							room = true
							return false
						}
						cookie = e.Next
						seen++
						return true
					}); err != nil {
						b.Fatal(err)
					}
				}
				if seen != n+2 {
					b.Fatalf("%d names", seen)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/name")
		})
	}
}
