// Package bdtest tests devices, and tests with devices: a conformance suite
// for anything that calls itself a blockdev.Device, a device that fails on
// demand, and a recorder from whose log the image after a power cut at any
// moment can be built.
package bdtest

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"testing"

	"extfused/blockdev"
)

// Run puts a device through everything the Device interface promises. mk
// makes a writable device of at least 1 MiB; it is called several times, and
// each device is closed here.
func Run(t *testing.T, mk func() blockdev.Device) {
	for _, c := range []struct {
		name string
		run  func(t *testing.T, d blockdev.Device)
	}{
		{"ReadBackWhatWasWritten", testModel},
		{"Ends", testEnds},
		{"RangeErrors", testRangeErrors},
		{"Zero", testZero},
		{"DiscardLeavesNeighbours", testDiscard},
		{"Concurrent", testConcurrent},
		{"ReadOnlyWrapper", testReadOnly},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := mk()
			c.run(t, d)
			if err := d.Flush(); err != nil {
				t.Errorf("flush: %v", err)
			}
			if err := d.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
}

func fill(rnd *rand.Rand, p []byte) []byte {
	for i := range p {
		p[i] = byte(rnd.Uint32())
	}
	return p
}

// testModel writes at random beside a plain byte slice, and compares.
func testModel(t *testing.T, d blockdev.Device) {
	const seed = 11
	rnd := rand.New(rand.NewPCG(seed, 0))
	model := make([]byte, 1<<20)
	if err := d.Zero(0, int64(len(model))); err != nil {
		t.Fatal(err)
	}
	for i := range 400 {
		off := rnd.IntN(len(model))
		n := min(rnd.IntN(40000), len(model)-off)
		var err error
		switch rnd.IntN(8) {
		case 0:
			err = d.Zero(int64(off), int64(n))
			clear(model[off : off+n])
		case 1:
			err = d.Flush()
		default:
			p := fill(rnd, make([]byte, n))
			_, err = d.WriteAt(p, int64(off))
			copy(model[off:], p)
		}
		if err != nil {
			t.Fatalf("seed %d, operation %d: %v", seed, i, err)
		}
		off = rnd.IntN(len(model))
		p := make([]byte, min(rnd.IntN(40000), len(model)-off))
		if n, err := d.ReadAt(p, int64(off)); n != len(p) || err != nil && err != io.EOF {
			t.Fatalf("read of %d at %d: %d, %v", len(p), off, n, err)
		}
		if !bytes.Equal(p, model[off:off+len(p)]) {
			t.Fatalf("seed %d, operation %d: %d bytes at %d differ from the model", seed, i, len(p), off)
		}
	}
}

func testEnds(t *testing.T, d blockdev.Device) {
	size := d.Size()
	if size < 1<<20 {
		t.Fatalf("size %d", size)
	}
	if d.ReadOnly() {
		t.Fatal("the device says it is read-only")
	}
	tail := []byte("the very end")
	if n, err := d.WriteAt(tail, size-int64(len(tail))); n != len(tail) || err != nil {
		t.Fatalf("write up to the end: %d, %v", n, err)
	}
	p := make([]byte, 100)
	if n, err := d.ReadAt(p, size-int64(len(tail))); n != len(tail) || err != io.EOF || !bytes.Equal(p[:n], tail) {
		t.Fatalf("read over the end: %d, %v, %q", n, err, p[:n])
	}
	for _, off := range []int64{size, size + 1, size + 1<<40} {
		if n, err := d.ReadAt(p, off); n != 0 || err != io.EOF {
			t.Errorf("read at size+%d: %d, %v", off-size, n, err)
		}
	}
	if n, err := d.ReadAt(nil, 0); n != 0 || err != nil {
		t.Errorf("empty read: %d, %v", n, err)
	}
}

func testRangeErrors(t *testing.T, d blockdev.Device) {
	size, p := d.Size(), make([]byte, 10)
	for _, off := range []int64{-1, size - 9, size, size + 100, 1<<63 - 5} {
		if _, err := d.WriteAt(p, off); !errors.Is(err, blockdev.ErrRange) {
			t.Errorf("write at %d: %v", off, err)
		}
		if err := d.Zero(off, 10); !errors.Is(err, blockdev.ErrRange) {
			t.Errorf("zero at %d: %v", off, err)
		}
		if err := d.Discard(off, 10); !errors.Is(err, blockdev.ErrRange) {
			t.Errorf("discard at %d: %v", off, err)
		}
	}
	if _, err := d.ReadAt(p, -1); !errors.Is(err, blockdev.ErrRange) {
		t.Errorf("read at -1: %v", err)
	}
	var oe *blockdev.OpError
	if _, err := d.WriteAt(p, -1); !errors.As(err, &oe) || oe.Op != "write" || oe.Off != -1 || oe.Len != 10 {
		t.Errorf("the error says %v", err)
	}
}

// testZero zeroes ranges with every kind of edge inside a pattern.
func testZero(t *testing.T, d blockdev.Device) {
	const area = 768 << 10
	for _, r := range [][2]int64{
		{0, area}, {1, 3}, {511, 2}, {512, 512}, {4095, 4098}, {4096, 8192},
		{5000, 300000}, {262144, 262144}, {262143, 262147}, {100, 0},
	} {
		pattern := bytes.Repeat([]byte{0x5A}, area)
		if _, err := d.WriteAt(pattern, 0); err != nil {
			t.Fatal(err)
		}
		if err := d.Zero(r[0], r[1]); err != nil {
			t.Fatalf("zero %v: %v", r, err)
		}
		clear(pattern[r[0] : r[0]+r[1]])
		got := make([]byte, area)
		if _, err := d.ReadAt(got, 0); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, pattern) {
			t.Fatalf("zero %v changed other bytes, or left some", r)
		}
	}
}

func testDiscard(t *testing.T, d blockdev.Device) {
	pattern := bytes.Repeat([]byte{0x77}, 256<<10)
	if _, err := d.WriteAt(pattern, 0); err != nil {
		t.Fatal(err)
	}
	const from, n = 40000, 100000
	err := d.Discard(from, n)
	if err != nil && !errors.Is(err, blockdev.ErrNotSupported) {
		t.Fatal(err)
	}
	got := make([]byte, len(pattern))
	if _, err := d.ReadAt(got, 0); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got[:from], pattern[:from]) || !bytes.Equal(got[from+n:], pattern[from+n:]) {
		t.Fatal("discard changed bytes outside its range")
	}
}

// testConcurrent lets goroutines own interleaved pages.
func testConcurrent(t *testing.T, d blockdev.Device) {
	const workers, pages, page = 8, 32, 4096 - 96
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range pages {
				off := int64((i*workers + w) * page)
				p := bytes.Repeat([]byte{byte(w + 1)}, page)
				q := make([]byte, page)
				if _, err := d.WriteAt(p, off); err != nil {
					t.Error(err)
				}
				if i%8 == 0 {
					if err := d.Flush(); err != nil {
						t.Error(err)
					}
				}
				if _, err := d.ReadAt(q, off); err != nil || !bytes.Equal(p, q) {
					t.Errorf("worker %d page %d: read back wrong (%v)", w, i, err)
				}
			}
		})
	}
	wg.Wait()
}

func testReadOnly(t *testing.T, d blockdev.Device) {
	if _, err := d.WriteAt([]byte("kept"), 0); err != nil {
		t.Fatal(err)
	}
	r := blockdev.NewReadOnly(d)
	_, err := r.WriteAt([]byte("lost"), 0)
	for _, err := range []error{err, r.Zero(0, 4), r.Discard(0, 4)} {
		if !errors.Is(err, blockdev.ErrReadOnly) {
			t.Errorf("a read-only device says %v", err)
		}
	}
	p := make([]byte, 4)
	if _, err := r.ReadAt(p, 0); err != nil || string(p) != "kept" || !r.ReadOnly() || r.Size() != d.Size() {
		t.Errorf("read %q, %v", p, err)
	}
}
