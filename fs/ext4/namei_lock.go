package ext4

import (
	"slices"

	"extfused/fs/ondisk"
)

// All locking of two inodes or more is in this file.
//
// Inode.mu of several inodes is taken in ascending order of inode number, each
// inode once. The number is the whole order: it needs no knowledge of who is
// whose parent, which is what makes it safe while directories move. It costs
// that the inodes must be known beforehand, while an entry's inode is known
// only under its directory's lock. So: with the directory locked, the entry is
// looked up and its inode *tried* (waiting for it is allowed when its number is
// above all that is held). If that fails everything is let go, all are locked
// in order, and the entry is looked up again; if it has changed meanwhile, the
// search starts anew.

// lockSet is the inodes an operation holds exclusively: at most two parents
// and two children.
type lockSet struct {
	held [4]*Inode
	n    int
}

// lock locks the given inodes (nil ones and repetitions are left out). The set
// is empty before.
func (s *lockSet) lock(inodes ...*Inode) {
	for _, i := range inodes {
		if i != nil && !s.holds(i) {
			s.held[s.n] = i
			s.n++
		}
	}
	slices.SortFunc(s.held[:s.n], byNumber)
	for _, i := range s.held[:s.n] {
		i.mu.Lock()
	}
}

func byNumber(a, b *Inode) int {
	switch {
	case a.ino < b.ino:
		return -1
	case a.ino > b.ino:
		return 1
	}
	return 0
}

func (s *lockSet) holds(i *Inode) bool {
	return slices.Contains(s.held[:s.n], i)
}

// add locks more inodes without giving up the ones held. It waits only where
// the order allows; otherwise it tries, and returns false, with nothing added,
// when a lock is not to be had.
func (s *lockSet) add(inodes ...*Inode) bool {
	var more lockSet
	for _, i := range inodes {
		if i != nil && !s.holds(i) && !more.holds(i) {
			more.held[more.n] = i
			more.n++
		}
	}
	slices.SortFunc(more.held[:more.n], byNumber)
	before := s.n
	for _, i := range more.held[:more.n] {
		if i.ino > s.highest() {
			i.mu.Lock()
		} else if !i.mu.TryLock() {
			s.unlockFrom(before)
			return false
		}
		s.held[s.n] = i
		s.n++
	}
	return true
}

func (s *lockSet) highest() (top ondisk.InodeNumber) {
	for _, i := range s.held[:s.n] {
		top = max(top, i.ino)
	}
	return top
}

func (s *lockSet) unlock() { s.unlockFrom(0) }

func (s *lockSet) unlockFrom(k int) {
	for s.n > k {
		s.n--
		s.held[s.n].mu.Unlock()
		s.held[s.n] = nil
	}
}

// entry is a name in a directory, and the inode it was found to mean (pinned),
// nil if there is no such name.
type entry struct {
	dir   *Inode
	name  string
	child *Inode
}

// lockEntries locks the directories of the entries and the inodes the names
// mean, and fills in the children, pinned. ENOENT of a name is not an error: its
// child stays nil. On error nothing is locked and nothing pinned.
func (fs *FS) lockEntries(s *lockSet, es ...*entry) error {
	var dirs, all [4]*Inode
	for k, e := range es {
		dirs[k] = e.dir
	}
	s.lock(dirs[:len(es)]...)
	for {
		if err := fs.findEntries(es); err != nil {
			s.unlock()
			fs.putEntries(es)
			return err
		}
		n := 0
		for _, e := range es {
			all[n], all[n+1] = e.dir, e.child
			n += 2
		}
		if s.add(all[:n]...) {
			return nil
		}
		s.unlock()
		s.lock(all[:n]...)
		same, err := fs.sameEntries(es)
		if same && err == nil {
			return nil
		}
		s.unlock()
		fs.putEntries(es)
		if err != nil {
			return err
		}
		s.lock(dirs[:len(es)]...)
	}
}

// findEntries looks the names up under the locks of their directories.
func (fs *FS) findEntries(es []*entry) error {
	for _, e := range es {
		ino, err := e.dir.dirLookup(e.name)
		if err == errNoEntry {
			continue
		}
		if err != nil {
			return err
		}
		if e.child, err = fs.iget(ino); err != nil {
			return err
		}
	}
	return nil
}

// sameEntries tells whether the names still mean what they meant.
func (fs *FS) sameEntries(es []*entry) (bool, error) {
	for _, e := range es {
		ino, err := e.dir.dirLookup(e.name)
		switch {
		case err == errNoEntry:
			if e.child != nil {
				return false, nil
			}
		case err != nil:
			return false, err
		case e.child == nil || e.child.ino != ino:
			return false, nil
		}
	}
	return true, nil
}

// putEntries gives the pins of the children back. No lock and no handle is held.
func (fs *FS) putEntries(es []*entry) {
	for _, e := range es {
		e.put(fs)
	}
}

func (e *entry) put(fs *FS) {
	if e.child != nil {
		fs.iput(e.child)
		e.child = nil
	}
}
