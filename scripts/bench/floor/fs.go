package main

import (
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// forever is the timeout of entries and attributes: nobody else writes.
const forever = 24 * 3600

// floor answers every request from memory.
type floor struct {
	fuse.RawFileSystem
	counts counters
	nextID atomic.Uint64
	shards [64]struct {
		sync.RWMutex
		nodes map[uint64]*node
	}
}

func newFloor() *floor {
	f := &floor{RawFileSystem: fuse.NewDefaultRawFileSystem()}
	for i := range f.shards {
		f.shards[i].nodes = map[uint64]*node{}
	}
	f.newNode(1, syscall.S_IFDIR|0o755, &fuse.InHeader{})
	return f
}

func (f *floor) get(id uint64) *node {
	s := &f.shards[id%64]
	s.RLock()
	defer s.RUnlock()
	return s.nodes[id]
}

func (f *floor) newNode(parent uint64, mode uint32, h *fuse.InHeader) *node {
	n := &node{id: f.nextID.Add(1), parent: parent}
	now := time.Now()
	a := &n.mu.attr
	a.Ino, a.Mode, a.Nlink, a.Blksize = n.id, mode, 1, 4096
	a.Owner = h.Owner
	a.SetTimes(&now, &now, &now)
	if n.isDir() {
		a.Nlink, a.Size = 2, 4096
		n.mu.names, n.mu.index = map[string]*node{}, map[string]int{}
	}
	s := &f.shards[n.id%64]
	s.Lock()
	s.nodes[n.id] = n
	s.Unlock()
	return n
}

func (f *floor) Forget(id, nlookup uint64) {
	f.counts.add(opForget)
	n := f.get(id)
	if n == nil || n.nlook.Add(-int64(nlookup)) > 0 || !n.gone.Load() {
		return
	}
	s := &f.shards[id%64]
	s.Lock()
	delete(s.nodes, id)
	s.Unlock()
}

func (f *floor) entry(n *node, out *fuse.EntryOut) {
	n.nlook.Add(1)
	out.NodeId, out.Generation = n.id, 1
	out.EntryValid, out.AttrValid = forever, forever
	n.mu.RLock()
	out.Attr = n.mu.attr
	n.mu.RUnlock()
}

func (f *floor) Lookup(_ <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	f.counts.add(opLookup)
	d := f.get(h.NodeId)
	d.mu.RLock()
	n := d.mu.names[name]
	d.mu.RUnlock()
	if n == nil {
		out.EntryValid = forever
		return fuse.OK // a negative entry
	}
	f.entry(n, out)
	return fuse.OK
}

func (f *floor) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	f.counts.add(opGetAttr)
	n := f.get(in.NodeId)
	n.mu.RLock()
	out.Attr = n.mu.attr
	n.mu.RUnlock()
	out.AttrValid = forever
	return fuse.OK
}

func (f *floor) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	f.counts.add(opSetAttr)
	n := f.get(in.NodeId)
	n.mu.Lock()
	a := &n.mu.attr
	if m, ok := in.GetMode(); ok {
		a.Mode = a.Mode&syscall.S_IFMT | m&0o7777
	}
	if u, ok := in.GetUID(); ok {
		a.Uid = u
	}
	if g, ok := in.GetGID(); ok {
		a.Gid = g
	}
	if s, ok := in.GetSize(); ok {
		n.truncateLocked(s)
	}
	setTimes(a, in)
	out.Attr = *a
	n.mu.Unlock()
	out.AttrValid = forever
	return fuse.OK
}

// make enters a new node under name.
func (f *floor) make(h *fuse.InHeader, name string, mode uint32, out *fuse.EntryOut) (*node, fuse.Status) {
	d := f.get(h.NodeId)
	n := f.newNode(d.id, mode, h)
	d.mu.Lock()
	if d.mu.names[name] != nil {
		d.mu.Unlock()
		return nil, fuse.Status(syscall.EEXIST)
	}
	d.addLocked(name, n)
	if n.isDir() {
		d.mu.attr.Nlink++
	}
	d.mu.Unlock()
	f.entry(n, out)
	return n, fuse.OK
}

func (f *floor) Mknod(_ <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	f.counts.add(opMknod)
	n, st := f.make(&in.InHeader, name, in.Mode, out)
	if n != nil {
		n.mu.attr.Rdev, out.Attr.Rdev = in.Rdev, in.Rdev
	}
	return st
}

func (f *floor) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	f.counts.add(opMkdir)
	_, st := f.make(&in.InHeader, name, in.Mode&0o7777|syscall.S_IFDIR, out)
	return st
}

func (f *floor) Create(_ <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	f.counts.add(opCreate)
	_, st := f.make(&in.InHeader, name, in.Mode&0o7777|syscall.S_IFREG, &out.EntryOut)
	out.OpenFlags = fuse.FOPEN_KEEP_CACHE
	return st
}

func (f *floor) Symlink(_ <-chan struct{}, h *fuse.InHeader, target, name string, out *fuse.EntryOut) fuse.Status {
	f.counts.add(opSymlink)
	n, st := f.make(h, name, syscall.S_IFLNK|0o777, out)
	if n != nil {
		n.mu.Lock()
		n.mu.target, n.mu.attr.Size = []byte(target), uint64(len(target))
		out.Attr = n.mu.attr
		n.mu.Unlock()
	}
	return st
}

func (f *floor) Readlink(_ <-chan struct{}, h *fuse.InHeader) ([]byte, fuse.Status) {
	f.counts.add(opReadlink)
	return f.get(h.NodeId).mu.target, fuse.OK
}

func (f *floor) Link(_ <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	f.counts.add(opLink)
	d, n := f.get(in.NodeId), f.get(in.Oldnodeid)
	d.mu.Lock()
	d.addLocked(name, n)
	d.mu.Unlock()
	n.mu.Lock()
	n.mu.attr.Nlink++
	n.mu.Unlock()
	f.entry(n, out)
	return fuse.OK
}

func (f *floor) remove(parent uint64, name string, dir bool) fuse.Status {
	d := f.get(parent)
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.mu.names[name]
	if n == nil {
		return fuse.ENOENT
	}
	if dir && len(n.mu.names) > 0 {
		return fuse.Status(syscall.ENOTEMPTY)
	}
	d.dropLocked(name)
	if dir {
		d.mu.attr.Nlink--
	}
	n.mu.Lock()
	n.mu.attr.Nlink--
	n.gone.Store(dir || n.mu.attr.Nlink == 0)
	n.mu.Unlock()
	return fuse.OK
}

func (f *floor) Unlink(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	f.counts.add(opUnlink)
	return f.remove(h.NodeId, name, false)
}

func (f *floor) Rmdir(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	f.counts.add(opRmdir)
	return f.remove(h.NodeId, name, true)
}

func (f *floor) Rename(_ <-chan struct{}, in *fuse.RenameIn, oldName, newName string) fuse.Status {
	f.counts.add(opRename)
	from, to := f.get(in.NodeId), f.get(in.Newdir)
	first, second := from, to
	if first.id > second.id {
		first, second = second, first
	}
	first.mu.Lock()
	if second != first {
		second.mu.Lock()
		defer second.mu.Unlock()
	}
	defer first.mu.Unlock()
	n := from.mu.names[oldName]
	if n == nil {
		return fuse.ENOENT
	}
	if old := to.mu.names[newName]; old != nil {
		old.gone.Store(true)
		to.dropLocked(newName)
	}
	from.dropLocked(oldName)
	to.addLocked(newName, n)
	return fuse.OK
}
