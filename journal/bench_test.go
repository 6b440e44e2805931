package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"extfused/blockdev"
	"extfused/blockdev/bcache"
)

// BenchmarkHandle is the price that every request of the file system pays:
// Begin, write access to three buffers that are in the transaction already,
// dirtying them, and Stop. Each goroutine has buffers of its own, as group
// bitmaps and inode tables mostly are.
func BenchmarkHandle(b *testing.B) {
	for _, procs := range []int{1, 2, 8} {
		b.Run(fmt.Sprintf("goroutines=%d", procs), func(b *testing.B) {
			r := newRig(b, rigParams{blockSize: 4096, logBlocks: 4096, blocks: 4096 + 4096, started: true, quiet: true})
			b.ReportAllocs()
			cpu := cpuTime()
			runHandles(b, r, procs)
			b.StopTimer()
			b.ReportMetric(float64(cpuTime()-cpu)/float64(b.N), "cpu-ns/op")
			r.must(r.j.Close())
		})
	}
}

// cpuTime is what the process has used, in nanoseconds: on a busy machine it
// says more than the clock.
func cpuTime() int64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

func runHandles(b *testing.B, r *rig, procs int) {
	done := make(chan error, procs)
	all := r.buffers(8, 3*procs)
	b.ResetTimer()
	for id := range procs {
		bufs := all[3*id:][:3]
		go func() { done <- useHandles(r.j, bufs, b.N/procs) }()
	}
	for range procs {
		r.must(<-done)
	}
}

func (r *rig) buffers(from uint64, n int) []*bcache.Buffer {
	bufs := make([]*bcache.Buffer, n)
	for i := range bufs {
		b, err := r.c.Get(from + uint64(i))
		r.must(err)
		b.SetUptodate()
		bufs[i] = b
	}
	return bufs
}

func useHandles(j *Journal, bufs []*bcache.Buffer, n int) error {
	for range n {
		h, err := j.Begin(10)
		if err != nil {
			return err
		}
		for _, b := range bufs {
			if err := h.GetWriteAccess(b); err != nil {
				return err
			}
			b.Data()[0]++
			if err := h.DirtyMetadata(b); err != nil {
				return err
			}
		}
		if err := h.Stop(); err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkCommit is a commit of n blocks to memory: copying and checksums.
func BenchmarkCommit(b *testing.B) {
	for _, n := range []int{5, 1000, 10000} {
		b.Run(fmt.Sprintf("blocks=%d", n), func(b *testing.B) {
			r := newRig(b, rigParams{blockSize: 4096, logBlocks: 1 << 16, blocks: 1<<16 + 20000,
				incompat: IncompatCsumV3 | Incompat64Bit, quiet: true})
			bufs := r.buffers(8, n)
			b.SetBytes(int64(n) * 4096)
			b.ResetTimer()
			cpu := cpuTime()
			for range b.N {
				h := r.begin(n)
				for _, buf := range bufs {
					r.must(h.GetWriteAccess(buf))
					r.must(h.DirtyMetadata(buf))
				}
				r.stop(h)
				r.commit()
			}
			b.ReportMetric(float64(cpuTime()-cpu)/float64(b.N), "cpu-ns/op")
		})
	}
}

// BenchmarkSync is Begin, three blocks, Stop and WaitCommit on a file, beside
// the least it can cost: writing as much with two fdatasyncs.
func BenchmarkSync(b *testing.B) {
	for _, procs := range []int{0, 1, 16} {
		name := fmt.Sprintf("callers=%d", procs)
		if procs == 0 {
			name = "floor"
		}
		b.Run(name, func(b *testing.B) { benchSync(b, procs) })
	}
}

func benchSync(b *testing.B, procs int) {
	p := rigParams{blockSize: 4096, logBlocks: 4096, blocks: 8192, incompat: IncompatCsumV3 | Incompat64Bit,
		started: true, quiet: true}
	p.setDefaults()
	path := filepath.Join(b.TempDir(), "image")
	if err := os.WriteFile(path, p.format(b).(ram), 0o600); err != nil {
		b.Fatal(err)
	}
	dev, err := blockdev.OpenFile(path, blockdev.OpenOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer dev.Close()
	if procs == 0 {
		b.ResetTimer()
		syncFloor(b, dev)
		return
	}
	r := mountRig(b, p, dev)
	all := r.buffers(8, 3*procs)
	b.ResetTimer()
	done := make(chan error, procs)
	for id := range procs {
		go func() { done <- syncHandles(r.j, all[3*id:][:3], (b.N+id)/procs) }()
	}
	for range procs {
		r.must(<-done)
	}
	b.StopTimer()
	s := r.j.Stats()
	b.ReportMetric(float64(s.SyncWaits)/float64(max(s.Commits, 1)), "syncs/commit")
	r.must(r.j.Close())
}

func syncFloor(b *testing.B, dev blockdev.Device) {
	buf := make([]byte, 4*4096)
	for i := range b.N {
		for _, n := range []int{len(buf), 4096} {
			if _, err := dev.WriteAt(buf[:n], int64(4097+i%3000)*4096); err != nil {
				b.Fatal(err)
			}
			if err := dev.Flush(); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func syncHandles(j *Journal, bufs []*bcache.Buffer, n int) error {
	for range n {
		h, err := j.Begin(3)
		if err != nil {
			return err
		}
		for _, b := range bufs {
			if err := errors.Join(h.GetWriteAccess(b), h.DirtyMetadata(b)); err != nil {
				return err
			}
		}
		tid := h.TID()
		if err := errors.Join(h.Stop(), j.WaitCommit(tid)); err != nil {
			return err
		}
	}
	return nil
}
