package main

import (
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
)

func (f *floor) Open(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	f.counts.add(opOpen)
	if in.Flags&syscall.O_TRUNC != 0 {
		n := f.get(in.NodeId)
		n.mu.Lock()
		n.truncateLocked(0)
		n.mu.Unlock()
	}
	out.OpenFlags = fuse.FOPEN_KEEP_CACHE
	return fuse.OK
}

func (f *floor) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	f.counts.add(opRead)
	n := f.get(in.NodeId)
	n.mu.RLock()
	k := n.readLocked(buf[:min(int(in.Size), len(buf))], in.Offset)
	n.mu.RUnlock()
	return fuse.ReadResultData(buf[:k]), fuse.OK
}

func (f *floor) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	f.counts.add(opWrite)
	n := f.get(in.NodeId)
	n.mu.Lock()
	n.writeLocked(data, in.Offset)
	n.mu.Unlock()
	return uint32(len(data)), fuse.OK
}

func (f *floor) Writev(_ <-chan struct{}, in *fuse.WriteIn, data [][]byte) (uint32, fuse.Status) {
	f.counts.add(opWrite)
	n := f.get(in.NodeId)
	off := in.Offset
	n.mu.Lock()
	for _, d := range data {
		n.writeLocked(d, off)
		off += uint64(len(d))
	}
	n.mu.Unlock()
	return uint32(off - in.Offset), fuse.OK
}

func (f *floor) Fallocate(_ <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	f.counts.add(opFallocate)
	n := f.get(in.NodeId)
	n.mu.Lock()
	defer n.mu.Unlock()
	if end := in.Offset + in.Length; in.Mode == 0 && end > n.mu.attr.Size {
		n.mu.attr.Size = end
	}
	return fuse.OK
}

func (f *floor) Release(_ <-chan struct{}, _ *fuse.ReleaseIn) { f.counts.add(opRelease) }

func (f *floor) Flush(_ <-chan struct{}, _ *fuse.FlushIn) fuse.Status {
	f.counts.add(opFlush)
	return fuse.ENOSYS
}

func (f *floor) Fsync(_ <-chan struct{}, _ *fuse.FsyncIn) fuse.Status {
	f.counts.add(opFsync)
	return fuse.OK
}

func (f *floor) FsyncDir(_ <-chan struct{}, _ *fuse.FsyncIn) fuse.Status {
	f.counts.add(opFsyncDir)
	return fuse.OK
}

func (f *floor) Access(_ <-chan struct{}, _ *fuse.AccessIn) fuse.Status { return fuse.ENOSYS }

// The floor has no xattrs but answers for them, as a file system with xattrs
// must: ENOSYS would end the requests for security.capability that the kernel
// sends for every new file, and with them all xattrs of the mount.
func (f *floor) GetXAttr(_ <-chan struct{}, _ *fuse.InHeader, _ string, _ []byte) (uint32, fuse.Status) {
	f.counts.add(opGetXAttr)
	return 0, fuse.ENODATA
}

func (f *floor) SetXAttr(_ <-chan struct{}, _ *fuse.SetXAttrIn, _ string, _ []byte) fuse.Status {
	return fuse.Status(syscall.EOPNOTSUPP)
}

func (f *floor) ListXAttr(_ <-chan struct{}, _ *fuse.InHeader, _ []byte) (uint32, fuse.Status) {
	return 0, fuse.OK
}

func (f *floor) OpenDir(_ <-chan struct{}, _ *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	f.counts.add(opOpenDir)
	out.OpenFlags = fuse.FOPEN_KEEP_CACHE | fuse.FOPEN_CACHE_DIR
	return fuse.OK
}

func (f *floor) ReleaseDir(_ *fuse.ReleaseIn) { f.counts.add(opReleaseDir) }

// dirEntry is what readdir hands out at position i: ".", "..", then the names.
func (f *floor) dirEntry(d *node, i uint64) (fuse.DirEntry, *node) {
	switch i {
	case 0:
		return fuse.DirEntry{Name: ".", Ino: d.id, Mode: syscall.S_IFDIR, Off: 1}, nil
	case 1:
		return fuse.DirEntry{Name: "..", Ino: d.parent, Mode: syscall.S_IFDIR, Off: 2}, nil
	}
	name := d.mu.order[i-2]
	n := d.mu.names[name]
	if n == nil {
		return fuse.DirEntry{}, nil
	}
	return fuse.DirEntry{Name: name, Ino: n.id, Mode: n.mu.attr.Mode, Off: i + 1}, n
}

func (f *floor) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	f.counts.add(opReadDir)
	d := f.get(in.NodeId)
	d.mu.RLock()
	defer d.mu.RUnlock()
	for i := in.Offset; i < uint64(len(d.mu.order))+2; i++ {
		if e, _ := f.dirEntry(d, i); e.Name != "" && !out.AddDirEntry(e) {
			break
		}
	}
	return fuse.OK
}

func (f *floor) ReadDirPlus(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	f.counts.add(opReadDirPlus)
	d := f.get(in.NodeId)
	d.mu.RLock()
	defer d.mu.RUnlock()
	for i := in.Offset; i < uint64(len(d.mu.order))+2; i++ {
		e, n := f.dirEntry(d, i)
		if e.Name == "" {
			continue
		}
		slot := out.AddDirLookupEntry(e)
		if slot == nil {
			break
		}
		if n != nil {
			f.entry(n, slot)
		}
	}
	return fuse.OK
}

func (f *floor) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	f.counts.add(opStatFs)
	out.Bsize, out.Frsize, out.NameLen = 4096, 4096, 255
	out.Blocks, out.Bfree, out.Bavail = 1<<24, 1<<23, 1<<23
	out.Files, out.Ffree = 1<<24, 1<<23
	return fuse.OK
}
